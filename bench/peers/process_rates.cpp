// Exchange rates of ranks that are threads, processes of a node or processes of MPI, beside memcpy, and the times of a
// layer's dispatch and combine for such ranks. mpi_rates.c has the raw loop of MPI.
//
//   moecl_process_rates threads 2
//   for r in 0 1; do moecl_process_rates join NAME $r 2 & done; wait
//   mpirun -n 2 moecl_process_rates mpi
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/opencl.hpp>
#include <moecl/strategy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

namespace {

using namespace moecl;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The median time of a call.
template <class Call>
double median_of(int times, Call call) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    call();
    all.push_back(seconds_since(begin));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void measure(Communicator& ranks) {
  const StreamView stream = ranks.stream();
  const auto size = static_cast<std::size_t>(ranks.size());
  if (ranks.rank() == 0)
    fmt::print("{:>9}  {:>12}  {:>16}  {:>13}\n", "bytes", "us all_to_all", "GB/s of a rank", "GB/s of memcpy");
  for (const std::uint64_t bytes :
       {1ULL << 10, 16ULL << 10, 64ULL << 10, 256ULL << 10, 1ULL << 20, 8ULL << 20, 32ULL << 20}) {
    std::vector<char> from(bytes, 1), to(bytes);
    const double copy = median_of(21, [&] {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" : : "r"(to.data()) : "memory");
    });
    const Buffer send(*stream.context, bytes * size), recv(*stream.context, bytes * size);
    enqueue_fill(stream, send.view(), 0);
    Communicator::Blocks blocks;
    for (std::size_t r = 0; r < size; ++r) {
      blocks.offsets.push_back(r * bytes);
      blocks.bytes.push_back(r == static_cast<std::size_t>(ranks.rank()) ? 0 : bytes);
    }
    const int times = bytes >= 1 << 20 ? 21 : 301;
    ranks.barrier();
    const double exchange = median_of(times, [&] {
      ranks.all_to_all_v(send.view(), blocks, recv.view(), blocks);
      ranks.wait(stream.record());
    });
    if (ranks.rank() == 0)
      fmt::print("{:>9}  {:>12.1f}  {:>16.2f}  {:>13.2f}\n", bytes, exchange * 1e6,
                 static_cast<double>(bytes * (size - 1)) / exchange / 1e9, static_cast<double>(bytes) / copy / 1e9);
  }
  const double meeting = median_of(2001, [&] { ranks.share("meeting", {1}); });
  ranks.share("idle", {});
  const std::clock_t used = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double idle = static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / 2;
  if (ranks.rank() == 0)
    fmt::print("a meeting of host threads: {:.1f} us; a rank that has nothing to do takes {:.2f} % of a core\n",
               meeting * 1e6, idle * 100);
  ranks.share("end", {});
}

/// The driver's share of an exchange. It tells that the rank's rows are ready (a marker completes), then continues when
/// the rows of others are there (a command that waits for a user event goes on).
void measure_driver(Communicator& ranks) {
  const StreamView stream = ranks.stream();
  const double driver = median_of(501, [&] {
    const Event ready = stream.record();
    cl_event const there = clCreateUserEvent(stream.context->handle(), nullptr);
    clEnqueueMarkerWithWaitList(stream.queue, 1, &there, nullptr);
    const Event end = stream.record();
    ranks.wait(ready);
    clSetUserEventStatus(there, CL_COMPLETE);
    ranks.wait(end);
    clReleaseEvent(there);
  });
  if (ranks.rank() == 0) fmt::print("the driver's part of an exchange: {:.1f} us\n", driver * 1e6);
  ranks.share("end", {});
}

TensorView ids_of(const Buffer& memory, StreamView stream, std::int64_t tokens, std::int64_t top_k,
                  std::int32_t experts) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens * top_k; ++i) ids.push_back(static_cast<std::int32_t>(i * 5 % experts));
  write_blocking(stream, memory.view(), ids.data(), ids.size() * sizeof(ids[0]));
  return {memory.view(), DType::i32, {tokens, top_k}};
}

/// Times a dispatch, and a combine, each until the stream has finished.
void measure_halves(Communicator& ranks) {
  constexpr std::int64_t hidden = 1024, top_k = 2;
  constexpr std::int32_t experts = 8;
  const StreamView stream = ranks.stream();
  for (const StrategyKind kind : {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v})
    for (const std::int64_t tokens : {1, 16, 128}) {
      const auto strategy =
          Strategy::make(kind, ExpertRank(ranks, 1, experts), {hidden, top_k, DType::f32, WireFormat::none});
      const Buffer x(*stream.context, tokens * hidden * sizeof(float)),
          ids(*stream.context, tokens * top_k * sizeof(std::int32_t)),
          out(*stream.context, tokens * hidden * sizeof(float));
      enqueue_fill(stream, x.view(), 0);
      const TensorView rows(x.view(), DType::f32, {tokens, hidden}), sums(out.view(), DType::f32, {tokens, hidden});
      const TokensIn in{rows, ids_of(ids, stream, tokens, top_k, experts), {}, {}};
      std::vector<double> there, back;
      for (int i = 0; i < 501; ++i) {
        ranks.share("begin", {});
        auto begin = Clock::now();
        const RoutedRows routed = strategy->dispatch(stream, in);
        ranks.wait(stream.record());
        there.push_back(seconds_since(begin));
        const Buffer results(*stream.context, std::max<std::int64_t>(routed.rows, 1) * hidden * sizeof(float));
        enqueue_fill(stream, results.view(), 0);
        ranks.wait(stream.record());
        ranks.share("begin", {});
        begin = Clock::now();
        strategy->combine(stream, TensorView(results.view(), DType::f32, {routed.rows, hidden}), sums);
        ranks.wait(stream.record());
        back.push_back(seconds_since(begin));
      }
      std::sort(there.begin(), there.end()), std::sort(back.begin(), back.end());
      if (ranks.rank() == 0)
        fmt::print("{:>10}, {:>3} tokens: dispatch {:6.1f} us (best tenth {:6.1f}), combine {:6.1f} ({:6.1f})\n",
                   name(kind), tokens, there[250] * 1e6, there[50] * 1e6, back[250] * 1e6, back[50] * 1e6);
    }
  ranks.share("end", {});
}

void measure_all(Communicator& ranks) {
  measure(ranks);
  measure_driver(ranks);
  measure_halves(ranks);
}

int run(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const auto context = Context::create({select_devices("", "").front()});
  if (how == "threads" && argc == 3) {
    std::vector<Stream> streams;
    for (int rank = 0; rank < std::atoi(argv[2]); ++rank) streams.emplace_back(*context);
    RankGroup({streams.begin(), streams.end()}).run(measure_all);
    return 0;
  }
  const Stream stream(*context);
  if (how == "join" && argc == 5)
    RankGroup::join(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), stream).run(measure_all);
  else if (how == "mpi" && argc == 2)
    RankGroup::from_mpi(nullptr, stream).run(measure_all);
  else
    return fmt::print(stderr, "usage: moecl_process_rates threads RANKS | join NAME RANK RANKS | mpi\n"), 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
