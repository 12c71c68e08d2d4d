#include <moecl/bf16.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include "tests/host/c_api.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/c_layer.h"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"
#include "tests/runtime/blocking_calls.hpp"

namespace moecl::test {
namespace {

moecl_device_array array(const TensorView& view) { return {view.buffer.handle, view.buffer.offset_bytes}; }

/// A device's queue, wrapped.
class CApiLayerTest : public OnEveryDevice {
 protected:
  void SetUp() override {
    ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context_.out()));
    ASSERT_OK(moecl_stream_wrap(context_, device().stream.view().queue, stream_.out()));
  }
  void load(const std::string& name, const moecl_layer_options* options = nullptr) {
    ASSERT_OK(moecl_layer_load(stream_, golden_dir(name).c_str(), -1, options, layer_.out()));
    ASSERT_OK(moecl_layer_describe(layer_, &info_));
  }
  std::uint64_t workspace_bytes(std::int64_t tokens) const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(moecl_layer_workspace_bytes(layer_, tokens, &bytes), MOECL_OK) << moecl_last_error_message();
    return bytes;
  }
  moecl_status forward(const moecl_forward_args& args) const {
    return moecl_layer_forward(layer_, stream_, &args, 0, nullptr, nullptr);
  }

  ContextHandle context_;
  StreamHandle stream_;
  LayerHandle layer_;
  moecl_layer_info info_ = sized<moecl_layer_info>();
};
MOECL_ON_EVERY_DEVICE(CApiLayerTest);

/// What a pass of T tokens needs, at odd offsets of bigger buffers.
struct Pass {
  GuardedTensor x, out;
  Buffer workspace;
  moecl_forward_args args = sized<moecl_forward_args>();

  Pass(const TestDevice& device, const std::vector<double>& input, std::int64_t hidden, std::uint64_t workspace_bytes)
      : x(upload(device, DType::f32, {static_cast<std::int64_t>(input.size()) / hidden, hidden}, input)),
        out(device, DType::f32, {static_cast<std::int64_t>(input.size()) / hidden, hidden}),
        workspace(*device.context, workspace_bytes + 256) {
    args.tokens = x.view().shape[0];
    args.x = array(x);
    args.out = array(out);
    args.workspace = {workspace.handle(), 256};
    args.workspace_bytes = workspace_bytes;
  }
};

TEST(CApiLayer, RunsInACProgramOnEveryDevice) {
  int32_t count = 0, ran = 0;
  ASSERT_OK(moecl_device_count(&count));
  for (int32_t i = 0; i < count; ++i) {
    auto info = sized<moecl_device_info>();
    ASSERT_OK(moecl_device_describe(i, &info));
    if (info.refused[0] != '\0') continue;
    double error = -1;
    const char* failed = c_layer_run(i, &error);
    ASSERT_EQ(failed, nullptr) << failed;
    EXPECT_LE(error, 1e-5) << info.platform_name;
    ++ran;
  }
  EXPECT_EQ(ran, static_cast<int32_t>(devices().size()));
}

TEST_P(CApiLayerTest, QuantizesActivationsAsTheCheckpointSaysUnlessTheyAreToStayPlain) {
  const char* const name = "mixtral-ct-fp8-e4k2";
  const double tolerance = device().caps().correctly_rounded_divide ? 1e-5 : 5e-3;
  for (const std::int32_t plain : {0, 1}) {
    auto options = sized<moecl_layer_options>();
    options.plain_activations = plain;
    options.dtype = MOECL_F32;
    load(name, &options);
    Pass pass(device(), golden_values(name, "hidden_states"), info_.hidden, workspace_bytes(7));
    ASSERT_OK(forward(pass.args));
    EXPECT_LE(relative_error(pass.out.values(), golden_values(name, plain != 0 ? "output" : "actquant.output_ref")),
              tolerance);
  }
}

TEST_P(CApiLayerTest, LoadsACheckpoint) {
  load(golden_name);
  EXPECT_EQ(info_.hidden, 96);
  EXPECT_EQ(info_.intermediate, 20);
  EXPECT_EQ(info_.experts, 32);
  EXPECT_EQ(info_.top_k, 8);
  EXPECT_EQ(info_.dtype, MOECL_F32);
  EXPECT_EQ(info_.expert_layout, MOECL_LAYOUT_STANDARD);
  EXPECT_GE(info_.weight_bytes, 32U * 3 * 96 * 20 * 4);

  Pass pass(device(), golden_values(golden_name, "hidden_states"), 96, workspace_bytes(33));
  const GuardedTensor logits(device(), DType::f32, {33, 32}), routed(device(), DType::f32, {33, 96});
  const GuardedTensor ids(device(), DType::i32, {33, 8}), weights(device(), DType::f32, {33, 8});
  pass.args.router_logits = array(logits);
  pass.args.routed_out = array(routed);
  pass.args.topk_ids = array(ids);
  pass.args.topk_weights = array(weights);
  ASSERT_OK(forward(pass.args));
  const BlockingCalls calls;
  ASSERT_OK(forward(pass.args));  // every program is compiled now
  EXPECT_THAT(calls.names(), testing::IsEmpty());
  EXPECT_LE(relative_error(pass.out.values(), golden_values(golden_name, "output")), 1e-5);
  EXPECT_LE(relative_error(routed.values(), golden_values(golden_name, "routed_output")), 1e-5);
  EXPECT_LE(relative_error(logits.values(), golden_values(golden_name, "router_logits")), 1e-5);

  // Tokens that are finished take no expert.
  const GuardedTensor finished(device(), DType::u8, {33}, std::vector<unsigned char>(33, 1));
  pass.args.finished = array(finished);
  ASSERT_OK(forward(pass.args));
  EXPECT_EQ(ids.values(), std::vector<double>(33 * 8, -1));
  pass.args.finished = {};
  ASSERT_OK(forward(pass.args));

  // The layer's own choice, passed back as the caller's routing, gives the same output.
  const std::vector<double> own = pass.out.values();
  Pass again(device(), golden_values(golden_name, "hidden_states"), 96, workspace_bytes(33));
  again.args.ids = array(ids);
  again.args.weights = array(weights);
  ASSERT_OK(forward(again.args));
  EXPECT_EQ(again.out.values(), own);
}

TEST_P(CApiLayerTest, TakesSeveralLaunchesWhereOneIsForbidden) {
  auto traced = sized<moecl_context_options>();
  traced.trace = MOECL_ON;
  auto options = sized<moecl_layer_options>();
  options.dtype = MOECL_BF16;
  const std::vector<double> rows = golden_values("qwen3-moe-e64k8", "bf16.hidden_states");
  const GuardedTensor x = upload(device(), DType::bf16, {8, 96}, {rows.begin(), rows.begin() + 8 * 96}),
                      out(device(), DType::f32, {8, 96});
  for (const bool forbidden : {false, true}) {
    options.several_launches = forbidden;
    ASSERT_OK(moecl_context_wrap(device().context->handle(), &traced, context_.out()));
    ASSERT_OK(moecl_stream_create(context_, 0, stream_.out()));
    load("qwen3-moe-e64k8", &options);
    const Buffer workspace(*device().context, workspace_bytes(8));
    auto args = sized<moecl_forward_args>();
    args.tokens = 8;
    args.x = array(x);
    args.out = array(out);
    args.workspace = {workspace.handle(), 0};
    args.workspace_bytes = workspace.size_bytes();
    ASSERT_OK(forward(args));
    const TempDir dir;
    ASSERT_OK(moecl_trace_write(context_, dir.file("trace.json").c_str()));
    std::ifstream file(dir.file("trace.json"));
    const std::string trace{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(trace, testing::HasSubstr("forward"));
    EXPECT_EQ(trace.find("in several launches: the layer's options forbid one") != std::string::npos, forbidden);
    layer_.reset();
    stream_.reset();
  }
}

TEST_P(CApiLayerTest, SaysOnWhichQueueSharedExpertsRun) {
  auto options = sized<moecl_layer_options>();
  for (const auto& [asked, text] :
       {std::pair{MOECL_ON, "a queue of their own"}, {MOECL_OFF, "the queue of the pass"}}) {
    options.shared_beside = asked;
    load(golden_name, &options);
    EXPECT_THAT(std::string(info_.shared_queue), testing::HasSubstr(text));
    layer_.reset();
  }
}

TEST_P(CApiLayerTest, StoresInTheTypeAskedFor) {
  auto options = sized<moecl_layer_options>();
  options.dtype = MOECL_BF16;
  options.chunk_tokens = 50;
  load("qwen3-moe-e64k8", &options);
  EXPECT_EQ(info_.dtype, MOECL_BF16);
  EXPECT_EQ(info_.chunk_tokens, 50);
  const GuardedTensor x =
      upload(device(), DType::bf16, {128, 96}, golden_values("qwen3-moe-e64k8", "bf16.hidden_states"));
  const GuardedTensor out(device(), DType::f32, {128, 96});
  const Buffer workspace(*device().context, workspace_bytes(128));
  auto args = sized<moecl_forward_args>();
  args.tokens = 128;
  args.x = array(x);
  args.out = array(out);
  args.out_dtype = MOECL_F32;
  args.workspace.memory = workspace.handle();
  ASSERT_OK(forward(args));
  EXPECT_LE(relative_error(out.values(), golden_values("qwen3-moe-e64k8", "bf16.output_ref")),
            bf16_tolerance(device().caps()));
  load("qwen3-moe-e128k8-bf16");
  EXPECT_EQ(info_.dtype, MOECL_BF16) << "by default, what the checkpoint stores";
  load("mixtral-awq-e4k2");
  EXPECT_EQ(info_.dtype, MOECL_F16) << "by default, the router's beside quantized experts";
}

TEST_P(CApiLayerTest, TakesRawWeights) {
  const RawWeights raw;
  ASSERT_OK(moecl_layer_create(stream_, &raw.desc, nullptr, layer_.out()));
  const Pass pass(device(), golden_values(golden_name, "hidden_states"), 96, workspace_bytes(33));
  ASSERT_OK(forward(pass.args));
  EXPECT_LE(relative_error(pass.out.values(), golden_values(golden_name, "output")), 1e-5);
}

/// Appends a bf16 matrix of any strides to `to`, row by row as f32.
void append_f32(std::vector<float>& to, const HostMatrix& matrix) {
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      std::uint16_t code;
      (matrix.data + (r * matrix.row_stride + c * matrix.column_stride) * 2).read(&code, sizeof(code));
      to.push_back(bf16_to_f32(code));
    }
}

TEST_P(CApiLayerTest, TakesBiases) {
  const char* name = "gpt-oss-bf16form-e8k4";
  const Checkpoint checkpoint = Checkpoint::open(golden_dir(name));
  const MoeWeights found = find_layer_weights(checkpoint, checkpoint.config().layer(0));
  std::vector<float> router, router_bias, gate_up, down, gate_up_bias, gate_bias, up_bias, down_bias;
  append_f32(router, found.router);
  append_f32(router_bias, found.router_bias);
  for (const ExpertMatrices& expert : found.experts) {
    append_f32(gate_up, expert.gate.plain);
    append_f32(gate_up, expert.up.plain);
    append_f32(down, expert.down.plain);
    append_f32(gate_up_bias, expert.gate_bias);
    append_f32(gate_up_bias, expert.up_bias);
    append_f32(gate_bias, expert.gate_bias);
    append_f32(up_bias, expert.up_bias);
    append_f32(down_bias, expert.down_bias);
  }
  auto desc = sized<moecl_layer_desc>();
  desc.hidden = 96;
  desc.intermediate = 64;
  desc.experts = 8;
  desc.top_k = 4;
  desc.score_order = MOECL_SCORE_AFTER_TOP_K;
  desc.activation = MOECL_SWIGLUOAI;
  desc.router = {router.data(), MOECL_F32};
  desc.router_bias = {router_bias.data(), MOECL_F32};
  desc.gate_up = {gate_up.data(), MOECL_F32};
  desc.down = {down.data(), MOECL_F32};
  desc.gate_up_bias = {gate_up_bias.data(), MOECL_F32};
  desc.down_bias = {down_bias.data(), MOECL_F32};
  const auto expect_golden = [&] {
    ASSERT_OK(moecl_layer_create(stream_, &desc, nullptr, layer_.out()));
    const Pass pass(device(), golden_values(name, "hidden_states"), 96, workspace_bytes(33));
    ASSERT_OK(forward(pass.args));
    EXPECT_LE(relative_error(pass.out.values(), golden_values(name, "output")), 1e-5);
  };
  expect_golden();
  desc.gate_bias = {gate_bias.data(), MOECL_F32};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "gate_up_bias, or gate_bias and up_bias, not both",
               moecl_layer_create(stream_, &desc, nullptr, layer_.out()));
  desc.gate_up_bias = {};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "up bias: the shape says one, the weights have none",
               moecl_layer_create(stream_, &desc, nullptr, layer_.out()));
  desc.up_bias = {up_bias.data(), MOECL_F32};
  expect_golden();
}

TEST_P(CApiLayerTest, RefusesDescriptionsThatDoNotFit) {
  RawWeights raw;
  const auto refuses = [&](moecl_status status, const char* text, const std::function<void(moecl_layer_desc&)>& spoil) {
    SCOPED_TRACE(text);
    moecl_layer_desc desc = raw.desc;
    spoil(desc);
    EXPECT_FAILS(status, text, moecl_layer_create(stream_, &desc, nullptr, layer_.out()));
    EXPECT_EQ(layer_, nullptr);
  };
  using Desc = moecl_layer_desc&;
  const moecl_status invalid = MOECL_INVALID_ARGUMENT;
  refuses(invalid, "size_bytes is 0", [](Desc d) { d.size_bytes = 0; });
  refuses(invalid, "top_k 33", [](Desc d) { d.top_k = 33; });
  refuses(invalid, "top_k 0", [](Desc d) { d.top_k = 0; });
  refuses(invalid, "hidden 0", [](Desc d) { d.hidden = 0; });
  refuses(invalid, "intermediate -1", [](Desc d) { d.intermediate = -1; });
  refuses(invalid, "experts 0", [](Desc d) { d.experts = 0; });
  refuses(invalid, "overflow", [](Desc d) { d.hidden = INT64_MAX; });
  refuses(invalid, "groups", [](Desc d) { d.groups = 5; });
  refuses(invalid, "score: 5", [](Desc d) { d.score = 5; });
  refuses(invalid, "score_order: -1", [](Desc d) { d.score_order = -1; });
  refuses(invalid, "group_score: 2", [](Desc d) { d.group_score = 2; });
  refuses(invalid, "activation: 7", [](Desc d) { d.activation = 7; });
  refuses(invalid, "router: dtype 0", [](Desc d) { d.router.dtype = MOECL_DEFAULT_DTYPE; });
  refuses(invalid, "gate: dtype 9", [](Desc d) { d.gate.dtype = 9; });
  refuses(invalid, "router: absent, but it has a bias",
          [](Desc d) { d.router_bias = d.selection_bias, d.router = {}; });
  refuses(invalid, "expert 0 down", [](Desc d) { d.down.data = nullptr; });
  refuses(invalid, "not both", [](Desc d) { d.gate_up = d.gate; });
  refuses(invalid, "shared", [](Desc d) { d.shared_down.data = nullptr; });
  refuses(invalid, "shared", [](Desc d) { d.shared_intermediate = 0; });
  refuses(invalid, "-2", [](Desc d) { d.shared_intermediate = -2; });
  refuses(invalid, "weight_on_input: needs top_k 1", [](Desc d) { d.weight_on_input = 1; });

  auto options = sized<moecl_layer_options>();
  options.dtype = 4;
  EXPECT_FAILS(invalid, "dtype 4", moecl_layer_create(stream_, &raw.desc, &options, layer_.out()));
  options.dtype = 0;
  options.expert_layout = 2;
  EXPECT_FAILS(invalid, "expert_layout: 2", moecl_layer_create(stream_, &raw.desc, &options, layer_.out()));
  options.expert_layout = 0;
  options.panel_layout = 4;
  EXPECT_FAILS(invalid, "panel_layout: 4", moecl_layer_create(stream_, &raw.desc, &options, layer_.out()));
  options.panel_layout = 0;
  options.shared_beside = 3;
  EXPECT_FAILS(invalid, "shared_beside: 3", moecl_layer_create(stream_, &raw.desc, &options, layer_.out()));
  options.shared_beside = MOECL_DEFAULT;
  options.panel_layout = MOECL_PANELS_K_WORDS;
  EXPECT_FAILS(MOECL_UNSUPPORTED, "multiplies f32 rows by f32 in k_words",
               moecl_layer_create(stream_, &raw.desc, &options, layer_.out()));
  EXPECT_FAILS(invalid, "desc: the pointer is null", moecl_layer_create(stream_, nullptr, nullptr, layer_.out()));
  EXPECT_FAILS(invalid, "stream: the pointer is null", moecl_layer_create(nullptr, &raw.desc, nullptr, layer_.out()));
  EXPECT_FAILS(invalid, "out_layer: the pointer is null", moecl_layer_create(stream_, &raw.desc, nullptr, nullptr));
}

TEST_P(CApiLayerTest, ReplacesWeightsByRawOnesAndByThoseOfACheckpoint) {
  load(golden_name);
  const std::vector<double> input = golden_values(golden_name, "hidden_states");
  const auto output = [&] {
    Pass pass(device(), input, 96, workspace_bytes(33));
    EXPECT_EQ(forward(pass.args), MOECL_OK) << moecl_last_error_message();
    return pass.out.values();
  };
  const std::vector<double> before = output();
  RawWeights raw;
  std::reverse(raw.down.begin(), raw.down.end());  // with the next line: the f32 numbers in reverse order
  for (auto number = raw.down.begin(); number != raw.down.end(); number += 4) std::reverse(number, number + 4);
  ASSERT_OK(moecl_layer_replace(layer_, stream_, &raw.desc));
  const std::vector<double> replaced = output();
  EXPECT_GT(relative_error(replaced, before), 1e-2);
  ASSERT_OK(moecl_layer_reload(layer_, stream_, golden_dir(golden_name).c_str(), -1));
  EXPECT_EQ(output(), before);
  ASSERT_OK(moecl_layer_create(stream_, &raw.desc, nullptr, layer_.out()));
  EXPECT_EQ(output(), replaced);

  constexpr auto invalid = MOECL_INVALID_ARGUMENT;
  EXPECT_FAILS(invalid, "router", moecl_layer_reload(layer_, stream_, golden_dir("mixtral-e8k2").c_str(), -1));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_layer_replace(nullptr, stream_, &raw.desc));
  EXPECT_FAILS(invalid, "stream: the pointer is null", moecl_layer_replace(layer_, nullptr, &raw.desc));
  EXPECT_FAILS(invalid, "desc: the pointer is null", moecl_layer_replace(layer_, stream_, nullptr));
  EXPECT_EQ(output(), replaced);
}

TEST_P(CApiLayerTest, RefusesCheckpointsItCannotLoad) {
  const std::string dir = golden_dir("qwen3-moe-layer1-e32k8");  // layer 0 is dense
  moecl_layer** out = layer_.out();
  EXPECT_FAILS(MOECL_IO_ERROR, "/no/such", moecl_layer_load(stream_, "/no/such", -1, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "0", moecl_layer_load(stream_, dir.c_str(), 0, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "7", moecl_layer_load(stream_, dir.c_str(), 7, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "-2", moecl_layer_load(stream_, dir.c_str(), -2, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_load(stream_, nullptr, -1, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_load(nullptr, dir.c_str(), -1, nullptr, out));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_load(stream_, dir.c_str(), -1, nullptr, nullptr));
  EXPECT_EQ(layer_, nullptr);
}

TEST_P(CApiLayerTest, RefusesArgumentsOfForwardThatDoNotFit) {
  load("mixtral-e8k2");
  const Pass pass(device(), normal(5 * 96, 1), 96, workspace_bytes(5));
  const CallersQueue elsewhere(device());
  cl_mem foreign = clCreateBuffer(elsewhere.context, CL_MEM_READ_WRITE, 1 << 20, nullptr, nullptr);
  const Buffer small(*device().context, 5 * 96 * 4 - 1);
  const auto refuses = [&](const char* text, const std::function<void(moecl_forward_args&)>& spoil) {
    SCOPED_TRACE(text);
    moecl_forward_args args = pass.args;
    spoil(args);
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, text, forward(args));
  };
  using Args = moecl_forward_args&;
  refuses("size_bytes is 0", [](Args a) { a.size_bytes = 0; });
  refuses("tokens: -1", [](Args a) { a.tokens = -1; });
  refuses("x: ", [](Args a) { a.tokens = INT64_MAX; });
  refuses("x: the cl_mem is null", [](Args a) { a.x.memory = nullptr; });
  refuses("out: absent, and neither routed_out nor shared_out nor expert_rows is asked for",
          [](Args a) { a.out.memory = nullptr; });
  refuses("x: byte offset 3 ", [](Args a) { a.x.offset_bytes = 3; });
  refuses("x: byte offset 1099511627776 ", [](Args a) { a.x.offset_bytes = std::uint64_t{1} << 40; });
  refuses("out: 5 rows of 384 bytes do not fit the 1919", [&](Args a) { a.out = {small.handle(), 0}; });
  refuses("router_logits: the cl_mem belongs to another", [&](Args a) { a.router_logits.memory = foreign; });
  refuses("out_dtype: dtype 17", [](Args a) { a.out_dtype = 17; });
  refuses("ids and weights", [&](Args a) { a.ids = a.x; });
  refuses("workspace", [](Args a) { a.workspace.memory = nullptr; });
  refuses("workspace: byte offset 4", [](Args a) { a.workspace.offset_bytes = 4; });
  refuses("workspace", [](Args a) { a.workspace_bytes -= 1; });
  refuses("workspace", [](Args a) { a.workspace_bytes += 1 << 20; });
  refuses("fault: needs 16 bytes", [&](Args a) { a.fault = {small.handle(), 5 * 96 * 4 - 8}; });
  pass.out.check_guards();
  for (const double value : pass.out.values()) EXPECT_TRUE(std::isnan(value)) << "a refused pass wrote its output";

  cl_event event = nullptr, foreign_event = clCreateUserEvent(elsewhere.context, nullptr);
  const auto wait = [&](std::uint32_t count, cl_event* events) {
    return moecl_layer_forward(layer_, stream_, &pass.args, count, events, nullptr);
  };
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "wait list: 2 events at NULL", wait(2, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "wait list: 0 events", wait(0, &foreign_event));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "event 0 of 1 is null", wait(1, &event));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "another cl_context", wait(1, &foreign_event));
  ContextHandle other_context;
  StreamHandle other_stream;
  ASSERT_OK(moecl_context_wrap(elsewhere.context, nullptr, other_context.out()));
  ASSERT_OK(moecl_stream_wrap(other_context, elsewhere.queue, other_stream.out()));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "different cl_contexts",
               moecl_layer_forward(layer_, other_stream, &pass.args, 0, nullptr, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "layer: the pointer",
               moecl_layer_forward(nullptr, stream_, &pass.args, 0, nullptr, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "stream: the pointer",
               moecl_layer_forward(layer_, nullptr, &pass.args, 0, nullptr, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "args: the pointer",
               moecl_layer_forward(layer_, stream_, nullptr, 0, nullptr, nullptr));
  std::uint64_t bytes = 0;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "-1", moecl_layer_workspace_bytes(layer_, -1, &bytes));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_workspace_bytes(layer_, 1, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_workspace_bytes(nullptr, 1, &bytes));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_describe(layer_, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_layer_describe(nullptr, &info_));
  clSetUserEventStatus(foreign_event, CL_COMPLETE);  // NVIDIA's driver waits for the event when the context goes
  clReleaseEvent(foreign_event);
  clReleaseMemObject(foreign);
}

TEST_P(CApiLayerTest, WaitsForEventsAndGivesOne) {
  load("mixtral-e8k2");
  const Pass pass(device(), golden_values("mixtral-e8k2", "hidden_states"), 96, workspace_bytes(33));
  cl_event gate = clCreateUserEvent(device().context->handle(), nullptr), done = nullptr;
  ASSERT_OK(moecl_layer_forward(layer_, stream_, &pass.args, 1, &gate, &done));
  ASSERT_NE(done, nullptr);
  cl_int status = CL_COMPLETE;
  clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
  EXPECT_NE(status, CL_COMPLETE);
  clSetUserEventStatus(gate, CL_COMPLETE);
  EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
  clReleaseEvent(gate);
  clReleaseEvent(done);
  EXPECT_LE(relative_error(pass.out.values(), golden_values("mixtral-e8k2", "output")), 1e-5);
}

TEST_P(CApiLayerTest, GivesAnEventWithoutTokens) {
  load("mixtral-e8k2");
  auto args = sized<moecl_forward_args>();
  cl_event done = nullptr;
  ASSERT_OK(moecl_layer_forward(layer_, stream_, &args, 0, nullptr, &done));
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
  clReleaseEvent(done);
}

TEST_P(CApiLayerTest, OutlivesTheHandlesItWasMadeFrom) {
  ContextHandle context;
  StreamHandle first, second;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, first.out()));
  ASSERT_OK(moecl_stream_create(context, 0, second.out()));
  ASSERT_OK(moecl_layer_load(first, golden_dir("mixtral-e8k2").c_str(), -1, nullptr, layer.out()));
  context.reset();
  first.reset();
  auto args = sized<moecl_forward_args>();
  ASSERT_OK(moecl_layer_forward(layer, second, &args, 0, nullptr, nullptr));
  ASSERT_OK(moecl_stream_finish(second));
}

TEST_P(CApiLayerTest, ReportsFaultsOfTheDevice) {
  load("mixtral-e8k2");
  Pass pass(device(), normal(2 * 96, 1), 96, workspace_bytes(2));
  const GuardedTensor fault = upload(device(), DType::i32, {4}, {0, 0, 0, 0});
  const GuardedTensor weights = upload(device(), DType::f32, {2, 2}, {1, 1, 1, 1});
  const GuardedTensor good = upload(device(), DType::i32, {2, 2}, {1, 0, 7, -1});
  const GuardedTensor bad = upload(device(), DType::i32, {2, 2}, {1, 0, 8, 3});
  pass.args.weights = array(weights);
  pass.args.fault = array(fault);
  pass.args.ids = array(good);
  ASSERT_OK(forward(pass.args));
  EXPECT_OK(moecl_check_fault(stream_, pass.args.fault));
  pass.args.ids = array(bad);
  ASSERT_OK(forward(pass.args));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "expert 8", moecl_check_fault(stream_, pass.args.fault));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_check_fault(stream_, {nullptr, 0}));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "null", moecl_check_fault(nullptr, pass.args.fault));
}

TEST_P(CApiLayerTest, LogsToTheCaller) {
  std::vector<std::string> lines;
  auto options = sized<moecl_context_options>();
  options.disk_cache = MOECL_OFF;  // so that programs are built, which is logged
  options.log_level = MOECL_LOG_INFO;
  options.log_user = &lines;
  options.log = [](void* user, moecl_log_level, const char* message) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(message);
  };
  ContextHandle context;
  StreamHandle stream;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), &options, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, stream.out()));
  ASSERT_OK(moecl_layer_load(stream, golden_dir("mixtral-e8k2").c_str(), -1, nullptr, layer_.out()));
  EXPECT_THAT(lines, testing::Contains(testing::HasSubstr("built ")));
}

}  // namespace
}  // namespace moecl::test
