// The whole layer against golden outputs of transformers, and the properties that forward promises.
#include <moecl/checkpoint.hpp>
#include <moecl/device_tensor.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/safetensors.hpp>
#include <moecl/trace.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <thread>
#include <tuple>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"
#include "tests/runtime/blocking_calls.hpp"

namespace moecl::test {
namespace {

std::vector<double> golden_values(const SafetensorsFile& file, const char* name) {
  const HostTensor tensor = file.tensor(name).in_memory();
  const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data.memory());
  return decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
}

/// A layer of a golden case on a device, with everything that one forward pass needs.
struct Fixture {
  TestDevice& device;
  Checkpoint checkpoint;
  MoeLayerConfig config;
  SafetensorsFile golden;
  MoeLayer layer;

  Fixture(TestDevice& on, const std::string& name, const MoeLayerOptions& options = {})
      : device(on),
        checkpoint(Checkpoint::open(data_path("goldens/" + name))),
        config(checkpoint.config().layer(checkpoint.config().first_moe_layer())),
        golden(SafetensorsFile::open(data_path("goldens/" + name + "/golden.safetensors"))),
        layer(on.stream, config.shape, find_layer_weights(checkpoint, config), options) {}

  std::int64_t hidden() const { return config.shape.hidden; }
  std::vector<double> input() const {
    return golden_values(golden, layer.options().dtype == DType::bf16 ? "bf16.hidden_states" : "hidden_states");
  }
};

Outputs forward(const Fixture& f, const std::vector<double>& input) { return run_layer(f.device, f.layer, input); }

class MoeLayerTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(MoeLayerTest);

/// Ids and weights of a token compared expert by expert: their order carries no meaning.
void expect_same_routing(const Outputs& got, const std::vector<double>& ids, const std::vector<double>& weights,
                         std::size_t top_k) {
  ASSERT_EQ(got.ids.size(), ids.size());
  double largest = 0;
  for (const double weight : weights) largest = std::max(largest, std::abs(weight));
  for (std::size_t token = 0; token < ids.size() / top_k; ++token)
    for (std::size_t k = token * top_k; k < (token + 1) * top_k; ++k) {
      const auto first = got.ids.begin() + static_cast<std::ptrdiff_t>(token * top_k);
      const auto found = std::find(first, first + static_cast<std::ptrdiff_t>(top_k), ids[k]);
      ASSERT_NE(found, first + static_cast<std::ptrdiff_t>(top_k))
          << "token " << token << " did not choose expert " << ids[k];
      EXPECT_NEAR(got.weights[static_cast<std::size_t>(found - got.ids.begin())], weights[k], 5e-6 * largest)
          << "token " << token;
    }
}

void expect_golden(TestDevice& device, const std::string& name, const MoeLayerOptions& options) {
  SCOPED_TRACE(name);
  const Fixture f(device, name, options);
  const bool bf16 = options.dtype == DType::bf16;
  const Outputs got = forward(f, f.input());
  const std::vector<double> expected = golden_values(f.golden, bf16 ? "bf16.output_ref" : "output");
  if (expected.empty()) return;
  EXPECT_LE(relative_error(got.out, expected), bf16 ? bf16_tolerance(device.caps()) : 1e-5);
  expect_same_routing(got, golden_values(f.golden, bf16 ? "bf16.topk_ids_ref" : "topk_ids"),
                      golden_values(f.golden, bf16 ? "bf16.topk_weights_ref" : "topk_weights"),
                      static_cast<std::size_t>(f.config.shape.router.top_k));
  if (bf16) return;
  EXPECT_LE(relative_error(got.routed, golden_values(f.golden, "routed_output")), 1e-5);
  EXPECT_LE(relative_error(got.logits, golden_values(f.golden, "router_logits")), 1e-5);
}

TEST_P(MoeLayerTest, AgreesWithGoldensInF32) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens"))) {
    expect_golden(device(), entry.path().filename(), {});
    ++cases;
  }
  EXPECT_GE(cases, 20);
}

TEST_P(MoeLayerTest, AgreesWithGoldensInBf16) {
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  for (const char* name : {"mixtral-odd257-bf16", "qwen2-moe-e60k4-norm-bf16", "deepseek-v3-e256k8-g8-bf16",
                           "qwen3-moe-e64k8", "gpt-oss-bf16form-e8k4", "granitemoe-e8k2"})
    expect_golden(device(), name, options);
}

TEST_P(MoeLayerTest, BatchedLayoutAgreesWithGoldens) {
  MoeLayerOptions options;
  options.layout = ExpertLayout::batched;
  for (const char* name : {"mixtral-skew", "qwen2-moe-e16k4", "olmoe-e64k8", "qwen3-moe-odd129-nonorm", "llama4-e8k1",
                           "gpt-oss-bf16form-e8k4", "granitemoe-e8k2", "phimoe-e8-wide-jitter"})
    expect_golden(device(), name, options);
}

TEST_P(MoeLayerTest, BytesThatHoldGateAndUpAreWrittenOnce) {
  ContextOptions traced;
  traced.trace = true;
  const auto context = Context::create(device().context->devices(), traced);
  const Stream stream(*context);
  const Checkpoint checkpoint = Checkpoint::open(data_path("goldens/llama4-e8k1"));
  const MoeLayerConfig config = checkpoint.config().layer(0);
  const MoeLayer layer(stream, config.shape, find_layer_weights(checkpoint, config));
  std::uint64_t writes = 0;
  for (const WorkSummary& row : context->trace()->summary())
    if (row.name == "write") writes += row.count;
  EXPECT_EQ(writes, 1U + 8U * 2 + 3);  // the router, each expert's two tensors, the shared expert's three
}

TEST_P(MoeLayerTest, AForwardTakesFewKernels) {
  // The experts have whole panels. Where products apply the activation, the activation takes no kernel of its own.
  MoeLayerOptions bf16, int8;
  bf16.dtype = int8.dtype = DType::bf16;
  int8.quantize = QuantScheme::int8_w8a8().weights;
  int8.activations = QuantScheme::int8_w8a8().activations;
  const bool fuses = device().caps().type == DeviceType::cpu && device().caps().preferred_float_width >= 4;
  for (const auto& [options, most] : {std::pair{bf16, 5U}, {int8, 6U}}) {
    const Fixture f(device(), "gpt-oss-bf16form-e8k4", options);
    const GuardedTensor x = upload(device(), DType::bf16, {16, f.hidden()},
                                   std::vector<double>(static_cast<std::size_t>(16 * f.hidden()), 1)),
                        out(device(), DType::f32, {16, f.hidden()});
    const Buffer workspace(*device().context, f.layer.workspace_bytes(16));
    MoeLayer::Forward args;
    args.x = x;
    args.out = out;
    args.workspace = workspace.view();
    const std::uint64_t before = device().context->counters().kernels_launched;
    f.layer.forward(device().stream, args);
    device().stream.finish();
    EXPECT_LE(device().context->counters().kernels_launched - before, most + (fuses ? 0 : 1));
  }
}

TEST_P(MoeLayerTest, BackendsAgreeWithGoldens) {
  for (const ExpertLayout layout : {ExpertLayout::standard, ExpertLayout::batched})
    for (const dense_backend::Backend backend :
         {dense_backend::Backend::grouped_gemm, dense_backend::Backend::clblast}) {
      SCOPED_TRACE(dense_backend::name(backend));
      MoeLayerOptions options;
      options.layout = layout;
      options.dense_backend = backend;
      expect_golden(device(), "qwen2-moe-e16k4", options);
      EXPECT_EQ(Fixture(device(), "qwen2-moe-e16k4", options).layer.report().dense_backend,
                dense_backend::name(backend));
    }
}

TEST_P(MoeLayerTest, SplitsWeightsThatExceedTheLargestAllocation) {
  const Fixture whole(device(), "mixtral-e8k2");
  // As if the device allocated no more than two experts' gate and up: [160, 96] f32, padded to three panels of 64.
  Device small = device().context->devices().front();
  small.caps.max_alloc_bytes = 2 * 192 * 96 * 4;
  TestDevice limited{Context::create({small}), {}, "limited"};
  limited.stream = Stream(*limited.context);
  MoeLayerOptions options;
  options.chunk_tokens = 8;
  const Fixture split(limited, "mixtral-e8k2", options);
  EXPECT_EQ(whole.layer.report().weight_segments, 1);
  EXPECT_EQ(split.layer.report().weight_segments, 4);
  const std::vector<double> expected = forward(whole, whole.input()).out;
  EXPECT_LE(relative_error(forward(split, split.input()).out, expected), 1e-6);  // chunks may run another variant
}

TEST_P(MoeLayerTest, AFailedLoadLeavesTheWeightsToTheCaller) {
  const Fixture whole(device(), "mixtral-e8k2");
  const MoeWeights weights = find_layer_weights(whole.checkpoint, whole.config);
  const LoadProgress stop = [](std::int64_t done, std::int64_t) {
    if (done == 2) throw Error(ErrorCode::io_error, "stopped");
  };
  const BlockingCalls calls;
  const Error error = error_of([&] { MoeLayer(device().stream, whole.config.shape, weights, {}, stop); });
  EXPECT_EQ(error.code(), ErrorCode::io_error) << error.what();
  EXPECT_THAT(calls.names(), testing::Contains("clFinish")) << "writes of experts may be in flight";
}

TEST_P(MoeLayerTest, ExpertsThatNoBufferHoldsAreRefusedBeforeAnythingIsWritten) {
  const Fixture whole(device(), "mixtral-e8k2");
  Device small = device().context->devices().front();
  small.caps.max_alloc_bytes = 64 * 96 * 4;  // room for the router, not for an expert
  TestDevice limited{Context::create({small}), {}, "limited"};
  limited.stream = Stream(*limited.context);
  const MoeWeights weights = find_layer_weights(whole.checkpoint, whole.config);
  const Error error = error_of([&] { MoeLayer(limited.stream, whole.config.shape, weights); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
}

TEST_P(MoeLayerTest, ChunksGiveTheSameResult) {
  MoeLayerOptions options;
  options.chunk_tokens = 10;
  const Fixture whole(device(), "deepseek-v3-e32k8-g8"), chunked(device(), "deepseek-v3-e32k8-g8", options);
  EXPECT_EQ(chunked.layer.report().chunk_tokens, 10);
  const Outputs a = forward(whole, whole.input()), b = forward(chunked, whole.input());
  EXPECT_EQ(a.ids, b.ids);
  // Not bit for bit: shorter chunks may run the variant for few rows, which sums in another order.
  EXPECT_LE(relative_error(b.weights, a.weights), 1e-6);
  EXPECT_LE(relative_error(b.out, a.out), 1e-6);
  EXPECT_LT(chunked.layer.workspace_bytes(1 << 20), whole.layer.workspace_bytes(1 << 20));
}

TEST_P(MoeLayerTest, ResultsRepeatBitForBit) {
  const Fixture f(device(), "qwen3-moe-e64k8");
  const Outputs first = forward(f, f.input());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(forward(f, f.input()).out, first.out);
}

/// Grids of many widths are in flight at once. PoCL survives this only where launches of the same kernel take turns.
TEST_P(MoeLayerTest, ServesStreamsOfSeveralThreads) {
  const Fixture f(device(), "mixtral-e8k2");
  const std::vector<double> input = f.input(), expected = golden_values(f.golden, "output");
  const std::int64_t hidden = f.hidden(), most = static_cast<std::int64_t>(input.size()) / hidden;
  const std::vector<float> rows(input.begin(), input.end());
  std::array<double, 3> worst{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < worst.size(); ++t)
    threads.emplace_back([&, t] {
      Context& context = *device().context;
      const Stream stream(context);
      const moecl::DeviceTensor x(context, DType::f32, {most, hidden}), out(context, DType::f32, {most, hidden});
      const Buffer workspace(context, f.layer.workspace_bytes(most));
      write_blocking(stream, x.buffer.view(), rows.data(), x.buffer.size_bytes());
      for (std::int64_t round = 0; round < 60; ++round) {
        const std::int64_t tokens = 1 + (round * 7 + static_cast<std::int64_t>(t) * 5) % most;
        MoeLayer::Forward args;
        args.x = x.view.rows(0, tokens);
        args.out = out.view.rows(0, tokens);
        args.workspace = workspace.view();
        f.layer.forward(stream, args);
        std::vector<float> got(static_cast<std::size_t>(tokens * hidden));
        read_blocking(stream, out.buffer.view(), got.data(), got.size() * sizeof(float));
        const std::vector<double> part(expected.begin(), expected.begin() + tokens * hidden);
        worst[t] = std::max(worst[t], relative_error({got.begin(), got.end()}, part));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(worst, testing::Each(testing::Le(1e-5)));
}

TEST_P(MoeLayerTest, TakesTheCallersRouting) {
  const Fixture f(device(), "mixtral-e8k2");
  const std::vector<double> input = f.input();
  const auto tokens = static_cast<std::int64_t>(input.size()) / f.hidden();
  const Outputs own = forward(f, input);
  const GuardedTensor x = upload(device(), DType::f32, {tokens, f.hidden()}, input),
                      out(device(), DType::f32, {tokens, f.hidden()});
  const GuardedTensor ids = upload(device(), DType::i32, {tokens, 2}, own.ids),
                      weights = upload(device(), DType::f32, {tokens, 2}, own.weights);
  const Buffer workspace(*device().context, f.layer.workspace_bytes(tokens));
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.ids = ids;
  args.weights = weights;
  args.workspace = workspace.view();
  f.layer.forward(device().stream, args);
  EXPECT_EQ(out.values(), own.out);
}

TEST_P(MoeLayerTest, ReportsAnExpertIdThatDoesNotExist) {
  const Fixture f(device(), "mixtral-e8k2");
  const GuardedTensor x =
      upload(device(), DType::f32, {2, f.hidden()}, normal(static_cast<std::size_t>(2 * f.hidden()), 3));
  const GuardedTensor out(device(), DType::f32, {2, f.hidden()}),
      fault = upload(device(), DType::i32, {4}, {0, 0, 0, 0});
  const GuardedTensor ids = upload(device(), DType::i32, {2, 2}, {1, 0, 9, 3}),
                      weights = upload(device(), DType::f32, {2, 2}, {1, 1, 1, 1});
  const Buffer workspace(*device().context, f.layer.workspace_bytes(2));
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.ids = ids;
  args.weights = weights;
  args.fault = fault;
  args.workspace = workspace.view();
  f.layer.forward(device().stream, args);
  const Error error = error_of([&] { check_fault(device().stream, fault); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("slot 2"), testing::HasSubstr("expert 9")));
}

TEST_P(MoeLayerTest, ForwardNeverStopsTheHost) {
  const Fixture f(device(), "qwen2-moe-e16k4");
  const std::vector<double> input = f.input();
  const auto tokens = static_cast<std::int64_t>(input.size()) / f.hidden();
  const GuardedTensor x = upload(device(), DType::f32, {tokens, f.hidden()}, input),
                      out(device(), DType::f32, {tokens, f.hidden()});
  const Buffer workspace(*device().context, f.layer.workspace_bytes(tokens));
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.workspace = workspace.view();
  f.layer.forward(device().stream, args);  // builds its programs
  device().stream.finish();
  const std::uint64_t counted = device().context->counters().host_syncs;
  const BlockingCalls witness;
  Event done;
  f.layer.forward(device().stream, args, {{}, &done});
  EXPECT_THAT(witness.names(), testing::IsEmpty());
  EXPECT_EQ(device().context->counters().host_syncs, counted);
  ASSERT_NE(done.handle(), nullptr);
  done.wait();
  EXPECT_THAT(witness.names(), testing::ElementsAre("clWaitForEvents"));
  EXPECT_LE(relative_error(out.values(), golden_values(f.golden, "output")), 1e-5);
}

TEST_P(MoeLayerTest, CompilesWhatForwardsWillNeedAndEnqueuesNothing) {
  TestDevice own;
  own.context = Context::create(device().context->devices());
  own.stream = Stream(*own.context);
  const Fixture f(own, "mixtral-e8k2");
  const ContextCounters& seen = own.context->counters();
  const auto programs = [&] { return seen.programs_built + seen.programs_from_disk; };
  const std::uint64_t launched = seen.kernels_launched;
  f.layer.compile(own.stream, 40);
  EXPECT_EQ(seen.kernels_launched, launched);
  const std::uint64_t compiled = programs();
  for (const std::int64_t tokens : {1, 7, 16, 17, 40}) {
    const moecl::DeviceTensor x(*own.context, DType::f32, {tokens, f.hidden()}),
        out(*own.context, DType::f32, {tokens, f.hidden()});
    const Buffer workspace(*own.context, f.layer.workspace_bytes(tokens));
    enqueue_fill(own.stream, x.buffer.view(), 0);
    MoeLayer::Forward args;
    args.x = x, args.out = out, args.workspace = workspace.view();
    f.layer.forward(own.stream, args);
    own.stream.finish();
    EXPECT_EQ(programs(), compiled) << tokens << " tokens";
  }
  EXPECT_GT(seen.kernels_launched, launched);
  EXPECT_EQ(error_of([&] { f.layer.compile(own.stream, -1); }).code(), ErrorCode::invalid_argument);
}

TEST_P(MoeLayerTest, AWorkspaceServesFewerTokensToo) {
  for (const ExpertLayout layout : {ExpertLayout::standard, ExpertLayout::batched}) {
    MoeLayerOptions options;
    options.dtype = DType::bf16;
    options.layout = layout;
    const Fixture f(device(), "mixtral-e8k2", options);
    std::uint64_t before = 0;
    for (std::int64_t tokens = 0; tokens < 200; ++tokens) {
      const std::uint64_t needed = f.layer.workspace_bytes(tokens);
      EXPECT_GE(needed, before) << tokens << " tokens";
      before = needed;
    }
  }
}

TEST_P(MoeLayerTest, RefusesWhatDoesNotFitBeforeAnythingIsEnqueued) {
  const Fixture f(device(), "mixtral-e8k2");
  const GuardedTensor x(device(), DType::f32, {4, f.hidden()}), out(device(), DType::f32, {4, f.hidden()});
  const GuardedTensor narrow(device(), DType::f32, {4, f.hidden() - 1}), half(device(), DType::f16, {4, f.hidden()}),
      ids(device(), DType::i32, {4, 2});
  const Buffer workspace(*device().context, f.layer.workspace_bytes(4));
  const std::uint64_t launched = device().context->counters().kernels_launched;
  const auto refused = [&](auto change) {
    MoeLayer::Forward args;
    args.x = x;
    args.out = out;
    args.workspace = workspace.view();
    change(args);
    const Error error = error_of([&] { f.layer.forward(device().stream, args); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_THAT(refused([&](auto& a) { a.x = narrow; }), testing::HasSubstr("f32[4, 95]"));
  EXPECT_THAT(refused([&](auto& a) { a.x = half; }), testing::HasSubstr("f16[4, 96]"));
  EXPECT_THAT(refused([&](auto& a) { a.out = narrow; }), testing::HasSubstr("f32[4, 95]"));
  EXPECT_THAT(refused([&](auto& a) { a.ids = ids; }), testing::HasSubstr("both or neither"));
  EXPECT_THAT(refused([&](auto& a) { a.workspace = workspace.view().slice(0, 16); }), testing::HasSubstr("got 16"));
  EXPECT_THAT(refused([&](auto& a) { a.workspace.handle = nullptr; }), testing::HasSubstr("got 0"));
  EXPECT_THAT(refused([&](auto& a) { a.workspace.offset_bytes = 8; }),
              testing::HasSubstr("workspace: byte offset 8 is no multiple of 16"));
  const MoeWeights weights = find_layer_weights(f.checkpoint, f.config);
  const Stream none;
  EXPECT_THAT(error_of([&] { f.layer.forward(none, {}); }).what(), testing::HasSubstr("forward: the stream has no"));
  EXPECT_THAT(error_of([&] { MoeLayer(none, f.config.shape, weights); }).what(),
              testing::HasSubstr("layer: the stream has no queue"));
  for (std::int64_t MoeLayerOptions::*rows : {&MoeLayerOptions::chunk_tokens, &MoeLayerOptions::rows_per_expert}) {
    MoeLayerOptions options;
    options.layout = ExpertLayout::batched;
    options.*rows = std::int64_t{1} << 60;
    EXPECT_THAT(error_of([&] { MoeLayer(device().stream, f.config.shape, weights, options); }).what(),
                testing::HasSubstr("is not in [0, 2147483647]"));
  }

  // Each tensor once in memory that does not fit its description.
  using Forward = MoeLayer::Forward;
  const Buffer memory(*device().context, 4 * static_cast<std::uint64_t>(f.hidden()) * 4);
  const BufferView all = memory.view();
  const TensorView wide(all, DType::f32, {4, f.hidden()});
  const std::tuple<const char*, TensorView Forward::*, TensorView> tensors[] = {
      {"x", &Forward::x, wide},
      {"out", &Forward::out, wide},
      {"routed_out", &Forward::routed_out, wide},
      {"router_logits", &Forward::router_logits, TensorView(all, DType::f32, {4, f.config.shape.experts})},
      {"topk_ids", &Forward::topk_ids, TensorView(all, DType::i32, {4, 2})},
      {"topk_weights", &Forward::topk_weights, TensorView(all, DType::f32, {4, 2})},
      {"finished", &Forward::finished, TensorView(all, DType::u8, {4})},
      {"fault", &Forward::fault, TensorView(all, DType::i32, {4})}};
  for (const auto& [name, field, sound] : tensors) {
    const auto refused_with = [&, field = field, &sound = sound](auto change) {
      TensorView view = sound;
      change(view);
      return refused([&](auto& a) { a.*field = view; });
    };
    const std::string of_tensor = std::string(name) + ": ";
    EXPECT_THAT(refused_with([](auto& v) { v.buffer.handle = nullptr; }), testing::StartsWith(of_tensor));
    EXPECT_THAT(refused_with([](auto& v) { v.buffer.size_bytes = v.size_bytes() - 1; }),
                testing::StartsWith(of_tensor));
    EXPECT_THAT(refused_with([](auto& v) { v.stride[0] = 1 << 20; }), testing::StartsWith(of_tensor));
    EXPECT_THAT(refused_with([](auto& v) { v.stride[v.rank - 1] = 2; }),
                testing::HasSubstr(of_tensor + "the last dim"));
    if (sound.dtype == DType::u8) continue;
    EXPECT_THAT(refused_with([](auto& v) { v.buffer.offset_bytes = 2; }),
                testing::HasSubstr(of_tensor + "byte offset 2"));
  }
  const TensorView gaps = [&] {
    TensorView view(memory.view(), DType::i32, {4, 2});
    view.stride[0] = 3;
    return view;
  }();
  EXPECT_THAT(refused([&](auto& a) { a.topk_ids = gaps; }), testing::HasSubstr("rows 3 elements apart"));
  EXPECT_THAT(refused([&](auto& a) { a.ids = gaps, a.weights = gaps; }), testing::HasSubstr("rows 3 elements apart"));
  EXPECT_EQ(device().context->counters().kernels_launched, launched);
}

TEST_P(MoeLayerTest, RefusesWeightsThatContradictTheShape) {
  const Fixture f(device(), "mixtral-e8k2");
  const auto refused = [&](auto change) {
    MoeShape shape = f.config.shape;
    MoeWeights weights = find_layer_weights(f.checkpoint, f.config);
    change(shape, weights);
    return std::string(error_of([&] { MoeLayer(device().stream, shape, weights); }).what());
  };
  EXPECT_THAT(refused([](auto& s, auto&) { s.router.top_k = 9; }), testing::HasSubstr("top_k 9 is not in [1, 8"));
  EXPECT_THAT(refused([](auto& s, auto&) { s.hidden = 97; }), testing::HasSubstr("expected [8, 97], got [8, 96]"));
  EXPECT_THAT(refused([](auto&, auto& w) { w.experts.pop_back(); }),
              testing::HasSubstr("the shape says 8, the weights have 7"));
  EXPECT_THAT(refused([](auto&, auto& w) { w.experts[3].up = {}; }), testing::HasSubstr("expert 3 up"));
  EXPECT_THAT(refused([](auto& s, auto&) { s.selection_bias = true; }), testing::HasSubstr("selection bias"));
}

}  // namespace
}  // namespace moecl::test
