// One rank of a group of processes that loses ranks again and again. ranks.py starts it, and determines which rank
// fails when.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/device_tensor.hpp>
#include <moecl/error.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/strategy.hpp>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using namespace moecl;

constexpr std::int32_t experts = 8, top_k = 2;
constexpr std::int64_t hidden = 64;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void tell(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

/// Which rank fails in a round, where and how.
struct Failure {
  int round = 0;
  std::int32_t victim = -1;
  int place = 0;  ///< a step of the pass; 7: some microseconds after the pass began
  int signal = SIGKILL;
};

/// Sends tokens through the strategy to experts that change nothing. So the result must be the input.
class Pass {
 public:
  Pass(RankGroup& group, StrategyKind kind)
      : rank_(group.communicator(group.local_ranks().front()), 1, experts),
        strategy_(Strategy::make(kind, rank_, problem())) {}

  /// @param failure  this rank's failure, or null. Errors: as Strategy; the result is not the input
  void run(std::int64_t tokens, const Failure* failure) {
    const StreamView stream = rank_.ep.stream();
    Context& context = *stream.context;
    const auto fail_at = [&](int place) {
      if (failure == nullptr || failure->place != place) return;
      tell(fmt::format("fails {} {}", failure->round, now_us()));
      std::raise(failure->signal);
    };
    if (failure != nullptr && failure->place == 7)
      std::thread([failure, delay = std::chrono::microseconds(std::rand() % 3000)] {
        std::this_thread::sleep_for(delay);
        tell(fmt::format("fails {} {}", failure->round, now_us()));
        std::raise(failure->signal);
      }).detach();
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < tokens * hidden; ++i) values.push_back(static_cast<float>(i % 97 + rank_.ep.rank()));
    for (std::int64_t i = 0; i < tokens * top_k; ++i)
      ids.push_back(static_cast<std::int32_t>((i * 3 + i / 2) % experts));
    const std::vector<float> halves(ids.size(), 0.5F);
    const DeviceTensor x(context, DType::f32, {tokens, hidden}), out(context, DType::f32, {tokens, hidden}),
        chosen(context, DType::i32, {tokens, top_k}), weights(context, DType::f32, {tokens, top_k});
    write_blocking(stream, x.view.buffer, values.data(), x.view.size_bytes());
    write_blocking(stream, chosen.view.buffer, ids.data(), chosen.view.size_bytes());
    write_blocking(stream, weights.view.buffer, halves.data(), weights.view.size_bytes());
    TokensIn in;
    in.x = x, in.ids = chosen, in.weights = weights;
    fail_at(0);
    const auto sort = strategy_->prepare(in, {});
    if (sort) expert_sort::enqueue(stream, *sort);
    fail_at(1);
    strategy_->begin_dispatch();
    fail_at(2);
    strategy_->hook();
    fail_at(3);
    const RoutedRows routed = strategy_->receive();
    fail_at(4);
    const DeviceTensor rows(context, DType::f32, {routed.rows, hidden});
    if (routed.rows > 0) {
      gather_rows::Args copy;
      copy.x = routed.x, copy.index = routed.index, copy.divisor = routed.index_divisor,
      copy.row_ends = routed.row_ends;
      copy.out = rows;
      gather_rows::enqueue(stream, copy);
    }
    strategy_->begin_combine(rows, out);
    fail_at(5);
    combine::Args sum = strategy_->finish_combine();
    fail_at(6);
    if (sum.slot_rows.present()) {
      sum.out = out;
      combine::enqueue(stream, sum);
    }
    rank_.ep.wait(stream.record());
    std::vector<float> back(values.size());
    read_blocking(stream, out.view.buffer, back.data(), out.view.size_bytes());
    if (back != values) throw Error(ErrorCode::invalid_data, "tokens came back other than they went");
  }
  Communicator& ranks() { return rank_.ep; }

 private:
  static ExpertProblem problem() {
    ExpertProblem problem;
    problem.hidden = hidden, problem.top_k = top_k;
    return problem;
  }
  ExpertRank rank_;
  std::unique_ptr<Strategy> strategy_;
};

/// Each round has another victim, strategy, place and signal; all ranks derive them from the number of the round.
Failure failure_of(int round, int seed, std::int32_t size) {
  return {round, seed % size, seed / size / 4 % 8, seed / size / 32 % 2 == 0 ? SIGKILL : SIGSTOP};
}
StrategyKind kind_of(int round, std::int32_t size) { return static_cast<StrategyKind>(round / size % 4); }

/// Retries: a machine with other work may take longer than the deadline to start a process.
template <class Join>
RankGroup whole_again(const Join& join) {
  for (int attempt = 0;; ++attempt) try {
      return join();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::deadline_exceeded || attempt == 10) throw;
    }
}

void work(const std::string& name, std::int32_t rank, std::int32_t size, int first, int rounds, int step) {
  const auto context = Context::create({select_devices("", "").front()});
  const Stream stream(*context);
  GroupOptions options;
  options.deadline =
      std::chrono::milliseconds(std::getenv("DEADLINE_MS") != nullptr ? std::atoi(std::getenv("DEADLINE_MS")) : 2000);
  RankGroup group = whole_again([&] { return RankGroup::join(name, rank, size, stream, options); });
  for (int round = first; round < rounds; ++round) {
    const int seed = round * step;
    const Failure failure = failure_of(round, seed, size);
    Pass pass(group, kind_of(seed, size));
    pass.run(5 + rank, nullptr);
    std::string cause;
    try {
      pass.ranks().share("round", {});  // a rank may not have the answer yet when another is lost
      pass.run(9 + rank, rank == failure.victim ? &failure : nullptr);
      for (;;) pass.ranks().barrier();
    } catch (const Error& error) {
      cause = error.what();
    }
    if (rank == failure.victim) throw Error(ErrorCode::deadline_exceeded, "the victim outlived its round: " + cause);
    tell(fmt::format("ended {} {} {}", round, now_us(), cause));
    const std::int64_t begin = now_us();
    RankGroup left = group.shrink();
    Pass smaller(left, kind_of(seed, size));
    const std::int64_t shrunk = now_us() - begin;
    smaller.run(4, nullptr);
    tell(fmt::format("shrunk {} {} {} {}", round, left.size(), shrunk, now_us() - begin));
    smaller.ranks().share("all are small", {});
    group = whole_again([&] { return left.rejoin(); });
    tell(fmt::format("whole {} {}", round, now_us()));
  }
  Pass(group, StrategyKind::mc2).run(3, nullptr);
  tell("done");
}

}  // namespace

/// NAME RANK SIZE FIRST_ROUND ROUNDS STEP
int main(int, char** argv) try {
  work(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]));
  return 0;
} catch (const std::exception& error) {
  tell(fmt::format("error {}", error.what()));
  return 1;
}
