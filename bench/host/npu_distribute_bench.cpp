// Dispatch and combine of a decode step over ranks that share the device. Each rank has its own stream. Wall time.
#include <moecl/communicator.hpp>

#include <chrono>
#include <memory>

#include "bench/device_time.hpp"
#include "host/npu/describe_distribute.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// A call with its own outputs and workspace.
template <class Args>
struct Ready {
  Args args;
  std::vector<Buffer> memory;
  npu::Call how;

  Ready(StreamView stream, const Args& from) : args(from) {
    infer(args);
    npu::for_each_output(args, [&](const char*, TensorView& view) {
      memory.emplace_back(*stream.context, view.size_bytes());
      view.buffer = memory.back().view();
    });
    memory.emplace_back(*stream.context, workspace_bytes(args, *stream.device));
    how.workspace = memory.back().view();
  }
  void run(Communicator& world) const { npu::Describe<Args>::run(world, args, how); }
};

/// Qwen3-30B-A3B: H 2048, 128 experts, top 8; 16 tokens a rank.
constexpr std::int64_t tokens = 16, hidden = 2048, experts = 128, top_k = 8;

/// One rank's tensors, with its dispatch and its combine call.
class Rank {
 public:
  explicit Rank(Communicator& world)
      : x_(world.stream(), DType::bf16, {tokens, hidden}, test::normal(tokens * hidden, 1)),
        ids_(world.stream(), DType::i32, {tokens, top_k}, ids()),
        weights_(world.stream(), DType::f32, {tokens, top_k}, std::vector<double>(tokens * top_k, 0.125)),
        dispatch_(world.stream(), dispatch_args(world)),
        combine_(world.stream(), combine_args(world)) {}

  void run(Communicator& world) const {
    dispatch_.run(world);
    combine_.run(world);
  }

 private:
  static std::vector<double> ids() {
    std::vector<double> list;
    for (std::int64_t slot = 0; slot < tokens * top_k; ++slot) list.push_back(static_cast<double>(slot * 37 % experts));
    return list;
  }
  template <class Args>
  static Args for_group(const Communicator& world) {
    Args args;
    args.ep_world_size = world.size();
    args.ep_rank_id = world.rank();
    args.moe_expert_num = experts;
    return args;
  }
  npu::MoeDistributeDispatchV2Args dispatch_args(const Communicator& world) const {
    auto args = for_group<npu::MoeDistributeDispatchV2Args>(world);
    args.x = x_;
    args.expert_ids = ids_;
    return args;
  }
  npu::MoeDistributeCombineV2Args combine_args(const Communicator& world) const {
    auto args = for_group<npu::MoeDistributeCombineV2Args>(world);
    args.expand_x = dispatch_.args.expand_x;
    args.assist_info_for_combine = dispatch_.args.assist_info_for_combine;
    args.ep_send_counts = dispatch_.args.ep_recv_counts;
    args.expert_ids = ids_;
    args.expert_scales = weights_;
    return args;
  }

  test::DeviceTensor x_, ids_, weights_;
  Ready<npu::MoeDistributeDispatchV2Args> dispatch_;
  Ready<npu::MoeDistributeCombineV2Args> combine_;
};

void distribute(benchmark::State& state) {
  constexpr int chain = 8;
  const auto ranks = static_cast<std::size_t>(state.range(0));
  std::vector<Stream> streams;
  for (std::size_t rank = 0; rank < ranks; ++rank) streams.emplace_back(*stream().context, 0, false);
  RankGroup group({streams.begin(), streams.end()});
  std::vector<std::unique_ptr<Rank>> calls(ranks);
  group.run([&](Communicator& world) {
    auto& mine = calls[static_cast<std::size_t>(world.rank())] = std::make_unique<Rank>(world);
    mine->run(world);
    world.stream().finish();
  });
  const auto received = [&] { return group.communicator(0).bytes_received(); };
  const std::uint64_t before = received();
  std::uint64_t count = 0;
  for (auto _ : state) {
    group.run([&](Communicator& world) {
      world.share("start", {});
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < chain; ++i) calls[static_cast<std::size_t>(world.rank())]->run(world);
      world.stream().finish();
      world.share("end", {});
      if (world.rank() == 0)
        state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / chain);
    });
    count += chain;
  }
  state.counters["bytes received a rank"] = static_cast<double>(received() - before) / static_cast<double>(count);
}
BENCHMARK(distribute)
    ->Name("npu_moe_distribute_dispatch_v2+combine_v2/bf16/T:16/E:128/K:8/H:2048")
    ->ArgName("ranks")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
