#include "bench/rank_layers.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "runtime/check.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Per pass: the times of the slowest rank, and the bytes of all ranks together.
struct PassTimes {
  double seconds, host_seconds;
  double bytes, bytes_between_nodes;
};

/// What rank 0 asks for. A negative `number`, which is no case, means the end.
struct Order {
  std::int64_t number = -1, layers = 0, passes = 0;
};

}  // namespace

/// One rank, with the layers of its current case.
class RankMember {
 public:
  RankMember(Communicator& world, const RankPlan& plan, const std::vector<RankLayers::Case>& cases)
      : world_(world), plan_(plan), cases_(cases) {}

  /// Does what rank 0 says. @return  nothing at the end
  std::optional<PassTimes> pass(Order mine) {
    const std::vector<std::int64_t> order = world_.share("bench", {mine.number, mine.layers, mine.passes}).front();
    if (order[0] < 0) return std::nullopt;
    return world_.together([&] {
      if (number_ != order[0]) enter(static_cast<std::size_t>(order[0]), order[1]);
      return passes(order[2]);
    });
  }
  std::string label() const {
    std::set<std::string> transports;
    for (std::int32_t peer = 1; peer < world_.size(); ++peer)
      transports.insert(std::string(name(world_.transport(peer).kind)));
    return fmt::format("{} by {}", name(layers_.front().last_strategy().kind), fmt::join(transports, "+"));
  }
  StreamView stream() const { return world_.stream(); }

 private:
  ExpertRank place(const ModelCase& model) const {
    return {world_, plan_.tp, model.shape.experts, plan_.sharding, plan_.ranks_per_node};
  }
  void enter(std::size_t number, std::int64_t layers);
  void load(const ModelCase& model, std::int64_t layers);
  PassTimes passes(std::int64_t count);

  Communicator& world_;
  const RankPlan& plan_;
  const std::vector<RankLayers::Case>& cases_;
  std::int64_t number_ = -1;
  std::string loaded_;
  std::vector<ParallelLayer> layers_;
  std::size_t turn_ = 0;
  std::vector<test::DeviceTensor> tensors_;
  ParallelLayer::Forward forward_;
  std::optional<AgreedStep> step_;
};

void RankMember::load(const ModelCase& model, std::int64_t layers) {
  const std::string wanted = fmt::format("{}/{}", model.shape_name, model.scheme.name);
  if (loaded_ != wanted) layers_.clear();
  const ModelWeights all(model, true);
  const ExpertRank rank = place(model);
  MoeWeights mine = all.weights;
  mine.experts = {all.weights.experts.begin() + rank.first_expert,
                  all.weights.experts.begin() + rank.first_expert + rank.local_experts};
  MoeLayerOptions options;
  options.dtype = model.scheme.plain;
  options.activations = model.scheme.quant.activations;
  while (static_cast<std::int64_t>(layers_.size()) < layers)
    layers_.emplace_back(rank, plan_.layer, model.shape, mine, options);
  loaded_ = wanted;
}

void RankMember::enter(std::size_t number, std::int64_t layers) {
  const auto& [model, source, tokens] = cases_[number];
  step_.reset();
  tensors_.clear();
  load(model, layers);
  // The tokens of all ranks, divided among the dp ranks as evenly as possible.
  const std::int64_t dp = plan_.ranks / plan_.tp, holder = world_.rank() / plan_.tp,
                     mine = tokens / dp + (holder < tokens % dp ? 1 : 0),
                     before = holder * (tokens / dp) + std::min(holder, tokens % dp);
  const std::int64_t hidden = model.shape.hidden, top_k = model.shape.router.top_k;
  forward_ = {};
  const auto add = [&](DType dtype, std::int64_t columns) -> const TensorView& {
    return tensors_.emplace_back(stream(), dtype, std::initializer_list<std::int64_t>{mine, columns}).view;
  };
  forward_.x = add(model.scheme.plain, hidden);
  const std::vector<std::byte> x = repeated_values(model.scheme.plain, tokens * hidden, 1);
  write_blocking(stream(), forward_.x.buffer,
                 x.data() + before * (forward_.x.size_bytes() / std::max<std::int64_t>(mine, 1)),
                 forward_.x.size_bytes());
  forward_.out = add(DType::f32, hidden);
  if (source.name != "uniform") {
    const std::vector<std::int32_t> ids = source.route(tokens, top_k, model.shape.experts).ids;
    forward_.ids = add(DType::i32, top_k);
    write_blocking(stream(), forward_.ids.buffer, ids.data() + before * top_k, forward_.ids.size_bytes());
    forward_.weights = add(DType::f32, top_k);
    enqueue_fill(stream(), forward_.weights.buffer, 0x3e000000);  // 1 / 8
  }
  step_ = layers_.front().agree({}, mine);
  number_ = static_cast<std::int64_t>(number);
}

PassTimes RankMember::passes(std::int64_t count) {
  using Clock = std::chrono::steady_clock;
  const auto received = [&](bool between_nodes) {
    std::uint64_t sum = 0;
    for (std::int32_t from = 0; from < world_.size(); ++from)
      if (!between_nodes || from / plan_.ranks_per_node != world_.rank() / plan_.ranks_per_node)
        sum += world_.bytes_received(from);
    return static_cast<std::int64_t>(sum);
  };
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  };
  world_.share("start", {});
  const std::int64_t bytes = received(false), between = received(true);
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < count; ++i) layers_[turn_++ % layers_.size()].forward(forward_, *step_);
  const std::int64_t host = since(start);
  stream().finish();
  const std::int64_t whole = since(start);
  PassTimes times{};
  for (const std::vector<std::int64_t>& of :
       world_.share("times", {whole, host, received(false) - bytes, received(true) - between})) {
    times.seconds = std::max(times.seconds, static_cast<double>(of[0]) / 1e9);
    times.host_seconds = std::max(times.host_seconds, static_cast<double>(of[1]) / 1e9);
    times.bytes += static_cast<double>(of[2]);
    times.bytes_between_nodes += static_cast<double>(of[3]);
  }
  for (double* value : {&times.seconds, &times.host_seconds, &times.bytes, &times.bytes_between_nodes})
    *value /= static_cast<double>(count);
  return times;
}

RankLayers::RankLayers(const ModelBenchmarks& wanted, RankPlan plan) : plan_(std::move(plan)) {
  benchmark::ClearRegisteredBenchmarks();
  for (const std::string& shape : wanted.shapes)
    for (const std::string& scheme : wanted.schemes)
      for (const RoutingSource& source : wanted.routings)
        for (const std::int64_t tokens : wanted.tokens) {
          const ModelCase model = ModelCase::named(shape, wanted.experts, Scheme::named(scheme));
          add_model_benchmark("layer", fmt::format("ranks:{}/moecl", plan_.ranks), model, source, tokens,
                              [this, number = cases_.size()](benchmark::State& state) { measure(state, number); });
          cases_.push_back({model, source, tokens});
        }
}

void RankLayers::run(RankGroup& group, const std::function<void()>& measure) {
  group.run([&](Communicator& world) {
    RankMember member(world, plan_, cases_);
    if (world.rank() != 0) {
      while (member.pass({})) {
      }
      return;
    }
    leader_ = &member;
    measure();
    leader_ = nullptr;
    if (failed()) std::rethrow_exception(failure_);
    member.pass({});
  });
}

void RankLayers::measure(benchmark::State& state, std::size_t number) try {
  const auto& [model, source, tokens] = cases_[number];
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  Order order;
  order.number = static_cast<std::int64_t>(number);
  order.layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes(), *leader_->stream().device);
  order.passes = 1;
  leader_->pass(order);  // loads and compiles
  constexpr double short_pass = 2e-3;
  constexpr std::int64_t chain = 8;  // as in `measure` of one device
  if (leader_->pass(order)->seconds < short_pass) order.passes = chain;
  double host_seconds = 0, iterations = 0;
  PassTimes times{};
  for (auto _ : state) {
    times = *leader_->pass(order);
    state.SetIterationTime(times.seconds);
    host_seconds += times.host_seconds, ++iterations;
  }
  state.counters["host us"] = 1e6 * host_seconds / iterations;
  state.counters["bytes exchanged"] = times.bytes;
  state.counters["bytes between nodes"] = times.bytes_between_nodes;
  state.SetLabel(leader_->label());
} catch (...) {
  failure_ = std::current_exception();
  throw;
}

nlohmann::ordered_json rank_facts(const RankGroup& group, const RankPlan& plan) {
  std::set<std::string> transports;
  for (std::int32_t from = 0; from < group.size(); ++from)
    for (const std::int32_t to : group.local_ranks())
      if (from != to) transports.insert(std::string(name(group.transport(from, to).kind)));
  return {{"ranks", plan.ranks},
          {"tp", plan.tp},
          {"ranks_per_node", plan.ranks_per_node},
          {"transport", fmt::format("{}", fmt::join(transports, "+"))}};
}

}  // namespace moecl::bench
