// A layer over four ranks. Each rank has a quarter of the experts, and its own tokens. The outputs have the same bits
// as those of one whole layer.
//
// usage: four_ranks MODEL_DIR
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>

#include <numeric>

#include "example.hpp"

namespace {

constexpr std::int32_t ranks = 4;
constexpr std::int64_t tokens = 3;  // of each rank

double run(const char* model_dir) {
  const moecl::Checkpoint checkpoint = moecl::Checkpoint::open(model_dir);
  const moecl::MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
  const std::int64_t hidden = config.shape.hidden;
  const std::size_t rank_values = static_cast<std::size_t>(tokens * hidden);
  const std::vector<float> input = random_values(ranks * rank_values, 1);
  std::vector<float> output(input.size());

  // The ranks share one device here. With several devices, each rank has a context and a stream on its own device.
  const auto context = moecl::Context::create({moecl::select_devices().front()});
  std::vector<moecl::Stream> streams;
  std::vector<moecl::StreamView> views;
  for (std::int32_t r = 0; r < ranks; ++r) views.push_back(streams.emplace_back(*context).view());

  moecl::RankGroup group(views);
  group.run([&](moecl::Communicator& world) {  // in a host thread for each rank
    const moecl::ExpertRank rank(world, /*tp=*/1, config.shape.experts);
    std::vector<std::int64_t> mine(static_cast<std::size_t>(rank.local_experts));
    std::iota(mine.begin(), mine.end(), rank.first_expert);
    moecl::ParallelLayer layer(rank, {moecl::StrategyKind::mc2}, config.shape,
                               moecl::find_layer_weights(checkpoint, config, mine));

    const std::size_t first = static_cast<std::size_t>(world.rank()) * rank_values;
    const moecl::DeviceTensor x(*context, moecl::DType::f32, {tokens, hidden});
    const moecl::DeviceTensor out(*context, moecl::DType::f32, {tokens, hidden});
    moecl::write_blocking(world.stream(), x.buffer.view(), &input[first], rank_values * sizeof(float));
    moecl::ParallelLayer::Forward forward;
    forward.x = x;
    forward.out = out;
    layer.forward(forward);
    moecl::read_blocking(world.stream(), out.buffer.view(), &output[first], rank_values * sizeof(float));
  });

  const moecl::Stream& stream = streams.front();
  const moecl::MoeLayer whole(stream, config.shape, moecl::find_layer_weights(checkpoint, config));
  const moecl::DeviceTensor x(*context, moecl::DType::f32, {ranks * tokens, hidden});
  const moecl::DeviceTensor out(*context, moecl::DType::f32, {ranks * tokens, hidden});
  const moecl::Buffer workspace(*context, whole.workspace_bytes(ranks * tokens));
  write(stream, x, input);
  moecl::MoeLayer::Forward forward;
  forward.x = x;
  forward.out = out;
  forward.workspace = workspace.view();
  whole.forward(stream, forward);
  return relative_error(output, read<float>(stream, out));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: four_ranks MODEL_DIR\n", stderr);
    return 2;
  }
  return run_example(0, [&] { return run(argv[1]); });
}
