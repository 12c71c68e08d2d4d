// Calls whose tensors overlap are refused before anything is enqueued.
#include <moecl/npu_activation.hpp>

#include <gmock/gmock.h>

#include <functional>

#include "tests/host/c_golden.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

class ApartTest : public OnEveryDevice {
 protected:
  std::uint64_t launched() const { return device().context->counters().kernels_launched; }
};
MOECL_ON_EVERY_DEVICE(ApartTest);

constexpr std::int64_t tokens = 3;

TEST_P(ApartTest, LayersTakeNoOutputThatSomethingElseLiesIn) {
  const Model model("deepseek-v3-e32k8-g8");
  const MoeLayer layer(device().stream, model.config.shape, model.weights(0, model.config.shape.experts));
  const DeviceTensor x(device().stream, DType::f32, {tokens, model.hidden()}),
      out(device().stream, DType::f32, {tokens, model.hidden()}), fault(device().stream, DType::i32, {4});
  const std::uint64_t needed = layer.workspace_bytes(tokens);
  const Buffer workspace(*device().context, needed + (1 << 16));
  const auto refused = [&](const std::string& text, const std::function<void(MoeLayer::Forward&)>& spoil) {
    MoeLayer::Forward args;
    args.x = x;
    args.out = out;
    args.fault = fault;
    args.workspace = workspace.view();
    spoil(args);
    const std::uint64_t before = launched();
    const Error error = error_of([&] { layer.forward(device().stream, args); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_EQ(launched(), before);
  };
  refused("x and out overlap: bytes [0, 1152) and [0, 1152) of one buffer", [&](auto& args) { args.out = x; });
  refused("out and workspace overlap", [&](auto& args) {
    args.out = TensorView(workspace.view().slice(needed - 4, 4096), DType::f32, {tokens, model.hidden()});
  });
  refused("x and fault overlap", [&](auto& args) { args.fault = TensorView(x.buffer.view(), DType::i32, {4}); });
  refused("x and workspace overlap", [&](auto& args) {
    args.x = TensorView(workspace.view(), DType::f32, {tokens, model.hidden()});
  });
  refused("out and routed_out overlap", [&](auto& args) { args.routed_out = out; });

  MoeLayer::Forward args;  // workspace memory past what a pass needs is the caller's
  args.x = x;
  args.out = TensorView(workspace.view().slice(needed, 4096), DType::f32, {tokens, model.hidden()});
  args.workspace = workspace.view();
  layer.forward(device().stream, args);
  device().stream.finish();
}

TEST_P(ApartTest, OperatorsTakeNoOutputThatSomethingElseLiesIn) {
  const DeviceTensor x(device().stream, DType::f32, {2, 8});
  npu::SwigluArgs args;
  args.x = x;
  infer(args);
  args.y.buffer = x.buffer.view().slice(32, 32);
  EXPECT_THAT([&] { npu::swiglu(device().stream, args, {}); },
              testing::ThrowsMessage<Error>(HasSubstr("x and y overlap: bytes [0, 64) and [32, 64)")));
}

TEST_P(ApartTest, TheCInterfaceSaysTheSame) {
  ContextHandle context;
  StreamHandle stream;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context.out()));
  ASSERT_OK(moecl_stream_wrap(context, device().stream.view().queue, stream.out()));
  ASSERT_OK(moecl_layer_load(stream, golden_dir(golden_name).c_str(), -1, nullptr, layer.out()));
  std::uint64_t needed = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(layer, tokens, &needed));
  const Buffer x(*device().context, 96 * tokens * 4), workspace(*device().context, needed);
  auto args = sized<moecl_forward_args>();
  args.tokens = tokens;
  args.x.memory = args.out.memory = x.handle();
  args.workspace.memory = workspace.handle();
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x and out overlap",
               moecl_layer_forward(layer, stream, &args, 0, nullptr, nullptr));
}

TEST(ParallelApartTest, LayersOverRanksTakeXAsOutputAndNoPartOfIt) {
  const Model model("deepseek-v3-e32k8-g8");
  const std::vector<float> input(static_cast<std::size_t>(tokens * model.hidden()), 0.5F);
  std::vector<std::vector<float>> outputs;
  for (const bool in_place : {false, true}) {
    Ranks on(2, Ranks::first_device, {std::chrono::milliseconds(60000), std::nullopt});
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      ParallelLayer layer(rank, {StrategyKind::mc2}, model.config.shape,
                          model.weights(rank.first_expert, rank.local_experts));
      const DeviceTensor x(world.stream(), DType::f32, {tokens + 1, model.hidden()}),
          out(world.stream(), DType::f32, {tokens, model.hidden()});
      ParallelLayer::Forward args;
      args.x = x.view.rows(0, tokens);
      args.out = in_place ? args.x : out.view;
      write_blocking(world.stream(), x.buffer.view(), input.data(), input.size() * 4);
      layer.forward(args);
      std::vector<float> values(input.size());
      read_blocking(world.stream(), args.out.buffer.slice(0, values.size() * 4), values.data(), values.size() * 4);
      if (world.rank() == 0) outputs.push_back(values);
    });
    if (!in_place) continue;
    const std::vector<std::string> texts = failures(on, [&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      ParallelLayer layer(rank, {StrategyKind::mc2}, model.config.shape,
                          model.weights(rank.first_expert, rank.local_experts));
      const DeviceTensor x(world.stream(), DType::f32, {tokens + 1, model.hidden()});
      ParallelLayer::Forward args;
      args.x = x.view.rows(0, tokens);
      args.out = x.view.rows(1, tokens);
      layer.forward(args);
    });
    for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("x and out overlap"));
  }
  EXPECT_EQ(outputs.at(0), outputs.at(1));
}

}  // namespace
}  // namespace moecl::test
