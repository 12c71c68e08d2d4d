#include "bench/rank_time.hpp"

#include <moecl/trace.hpp>

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/host_time.hpp"
#include "bench/traced_kernels.hpp"

namespace moecl::bench {
namespace {

constexpr int chain = 16;

struct Group {
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Stream> timed, traced;  ///< of each rank: without profiling, and with
  std::unique_ptr<RankGroup> ranks;

  /// @param peer_memory  as of measure_enqueue_of_ranks
  explicit Group(std::size_t count, const std::shared_ptr<PeerMemory>& peer_memory = nullptr) {
    const std::vector<Device> devices = peer_memory == nullptr ? gpus() : std::vector<Device>(count, *stream().device);
    ContextOptions options;
    options.trace = true;
    for (std::size_t rank = 0; rank < count; ++rank) {
      if (devices.size() >= count) contexts.push_back(Context::create({devices[rank]}, options));
      Context& context = devices.size() >= count ? *contexts.back() : *stream().context;
      timed.emplace_back(context, 0, false);
      traced.emplace_back(context, 0, true);
    }
    GroupOptions how;
    if (peer_memory != nullptr) how.transport = TransportKind::peer_window, how.peer_memory = peer_memory;
    ranks = std::make_unique<RankGroup>(views(timed), how);
  }
  static std::vector<StreamView> views(const std::vector<Stream>& streams) { return {streams.begin(), streams.end()}; }
};

double median_of_least(const std::vector<std::vector<TracedKernel>>& of_ranks, bool puts_alone) {
  std::vector<double> steps(chain, std::numeric_limits<double>::infinity());
  for (const std::vector<TracedKernel>& kernels : of_ranks) {
    const std::size_t each = kernels.size() / chain;
    for (std::size_t step = 0; step < chain; ++step) {
      double us = 0;
      for (std::size_t i = step * each; i < (step + 1) * each; ++i)
        us += puts_alone && kernels[i].name != "window_put" ? 0 : kernels[i].us;
      steps[step] = std::min(steps[step], us);
    }
  }
  std::nth_element(steps.begin(), steps.begin() + chain / 2, steps.end());
  return steps[chain / 2];
}

/// Repeats the chain on queues with profiling, for the device's times.
RankTimes device_times(Group& group, const std::vector<RankStep>& steps) {
  group.ranks->set_streams(Group::views(group.traced));
  std::vector<std::vector<TracedKernel>> kernels(steps.size());
  group.ranks->run([&](Communicator& world) {
    const RankStep& step = steps[static_cast<std::size_t>(world.rank())];
    step();
    world.stream().finish();
    world.stream().trace->clear();
    world.share("start", {});
    for (int i = 0; i < chain; ++i) step();
    world.stream().finish();
    std::vector<TracedKernel>& own = kernels[static_cast<std::size_t>(world.rank())];
    own = traced_kernels(*world.stream().trace);
    own.erase(std::remove_if(own.begin(), own.end(), [](const auto& one) { return one.kind == WorkKind::transfer; }),
              own.end());
    world.share("end", {});
  });
  return {median_of_least(kernels, false), median_of_least(kernels, true)};
}

/// The step of each rank, after warm-up.
std::vector<RankStep> steps_of(Group& group, const std::function<RankStep(Communicator&)>& make) {
  std::vector<RankStep> steps(group.timed.size());
  group.ranks->run([&](Communicator& world) {
    RankStep& step = steps[static_cast<std::size_t>(world.rank())] = make(world);
    for (int i = 0; i < 3; ++i) step();
    world.stream().finish();
  });
  return steps;
}

}  // namespace

std::vector<Device> gpus() {
  const Device& of = *stream().device;
  return of.caps.type == DeviceType::gpu ? select_devices(of.caps.platform_name, of.caps.name) : std::vector<Device>();
}

std::optional<RankTimes> measure_ranks(benchmark::State& state, std::int64_t ranks,
                                       const std::function<RankStep(Communicator&)>& make) try {
  Group group(static_cast<std::size_t>(ranks));
  const std::vector<RankStep> steps = steps_of(group, make);
  for (auto _ : state)
    group.ranks->run([&](Communicator& world) {
      const RankStep& step = steps[static_cast<std::size_t>(world.rank())];
      world.share("start", {});
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < chain; ++i) step();
      world.stream().finish();
      world.share("end", {});
      if (world.rank() == 0)
        state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / chain);
    });
  if (ranks > 1) state.SetLabel(name(group.ranks->transport(1, 0).kind));
  if (group.contexts.empty()) return std::nullopt;
  const RankTimes times = device_times(group, steps);
  state.counters["kernels us"] = times.kernels_us;
  state.counters["exchange us"] = times.exchange_us;
  return times;
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
  return std::nullopt;
}

void measure_enqueue_of_ranks(benchmark::State& state, std::int64_t ranks,
                              const std::function<RankStep(Communicator&)>& make,
                              const std::shared_ptr<PeerMemory>& peer_memory) try {
  Group group(static_cast<std::size_t>(ranks), peer_memory);
  const std::vector<RankStep> steps = steps_of(group, make);
  std::optional<LaunchesLeftOut> left_out(std::in_place);
  for (auto _ : state)
    group.ranks->run([&](Communicator& world) {
      const RankStep& step = steps[static_cast<std::size_t>(world.rank())];
      world.share("start", {});
      const double start = thread_seconds();
      for (int i = 0; i < chain; ++i) step();
      const double seconds = thread_seconds() - start;
      world.stream().finish();
      if (world.rank() == 0) state.SetIterationTime(seconds / chain);
    });
  left_out.reset();
  state.SetLabel(name(group.ranks->transport(1, 0).kind));
  const auto launched = [&](std::uint64_t before) {
    return StreamView(group.timed.front()).context->counters().kernels_launched - before;
  };
  const std::uint64_t before = launched(0);
  group.ranks->run([&](Communicator& world) {
    steps[static_cast<std::size_t>(world.rank())]();
    world.stream().finish();
  });
  const std::size_t ranks_counted = group.contexts.empty() ? steps.size() : 1;  // ranks that this context counts
  state.counters["launches"] = static_cast<double>(launched(before)) / static_cast<double>(ranks_counted);
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}

}  // namespace moecl::bench
