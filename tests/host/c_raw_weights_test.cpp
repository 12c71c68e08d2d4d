// Layers from raw weights in C: every golden's matrices as arrays of all experts, plain and quantized, gate and up
// apart, one after the other, or alternating; against what PyTorch computed.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <map>

#include "tests/devices.hpp"
#include "tests/host/c_api.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

using Bytes = std::vector<unsigned char>;

/// How the rows of gate and up are stored.
enum class Halves { apart, one_after_the_other, alternating };

std::int32_t number_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MOECL_F32;
    case DType::f16:
      return MOECL_F16;
    case DType::bf16:
      return MOECL_BF16;
    case DType::f8_e4m3:
      return MOECL_F8_E4M3;
    case DType::u8:
      return MOECL_E8M0;  // u8 numbers are scales
    default:
      ADD_FAILURE() << name(dtype);
      return 0;
  }
}

std::int32_t number_of(CodeType type) {
  switch (type) {
    case CodeType::i8:
      return MOECL_I8;
    case CodeType::u8:
      return MOECL_U8;
    case CodeType::i4:
      return MOECL_I4;
    case CodeType::u4:
      return MOECL_U4;
    case CodeType::f8_e4m3:
      return MOECL_F8_E4M3;
    case CodeType::f8_e5m2:
      return MOECL_F8_E5M2;
    case CodeType::f4_e2m1:
      return MOECL_F4_E2M1;
    default:
      ADD_FAILURE() << name(type);
      return 0;
  }
}

/// One matrix of each expert, in the order of experts.
using Matrices = std::vector<const WeightMatrix*>;

/// The arrays that a C program has: contiguous, each with all experts.
class RawLayer {
 public:
  RawLayer(const MoeShape& shape, const MoeWeights& weights, Halves halves) {
    describe(shape);
    desc.router = plain({&weights.router});
    desc.router_bias = plain({&weights.router_bias});
    desc.selection_bias = plain({&weights.selection_bias});
    desc.shared_expert_gate = plain({&weights.shared_gate});
    Matrices gate, up, down;
    std::vector<const HostMatrix*> gate_bias, up_bias, down_bias;
    for (const ExpertMatrices& expert : weights.experts) {
      gate.push_back(&expert.gate), up.push_back(&expert.up), down.push_back(&expert.down);
      gate_bias.push_back(&expert.gate_bias), up_bias.push_back(&expert.up_bias),
          down_bias.push_back(&expert.down_bias);
      up_input_scales_.push_back(expert.gate_up_input_scale), down_input_scales_.push_back(expert.down_input_scale);
    }
    if (halves == Halves::apart) {
      set(gate, desc.gate, desc.quantized_gate);
      set(up, desc.up, desc.quantized_up);
      desc.gate_bias = plain(gate_bias);
      desc.up_bias = plain(up_bias);
    } else {
      const bool alternate = halves == Halves::alternating;
      Matrices both;
      for (std::size_t e = 0; e < gate.size(); ++e) both.push_back(joined(*gate[e], *up[e], alternate));
      set(both, desc.gate_up, desc.quantized_gate_up);
      desc.gate_up_interleaved = alternate ? 1 : 0;
      std::vector<const HostMatrix*> bias;
      if (gate_bias.front()->present())
        for (std::size_t e = 0; e < gate.size(); ++e)
          bias.push_back(joined(*gate_bias[e], *up_bias[e], alternate, true));
      desc.gate_up_bias = plain(bias);
    }
    set(down, desc.down, desc.quantized_down);
    desc.down_bias = plain(down_bias);
    desc.quantized_up.input_scales = desc.quantized_gate_up.input_scales = up_input_scales_.data();
    desc.quantized_down.input_scales = down_input_scales_.data();
    if (shape.shared_intermediate == 0) return;
    set({&weights.shared.gate}, desc.shared_gate, desc.quantized_shared_gate);
    set({&weights.shared.up}, desc.shared_up, desc.quantized_shared_up);
    set({&weights.shared.down}, desc.shared_down, desc.quantized_shared_down);
    desc.shared_gate_bias = plain({&weights.shared.gate_bias});
    desc.shared_up_bias = plain({&weights.shared.up_bias});
    desc.shared_down_bias = plain({&weights.shared.down_bias});
  }

  /// Whether rows of gate and of up can stand in one array.
  static bool can_join(const ExpertMatrices& expert, Halves halves) {
    if (halves == Halves::apart) return true;
    const WeightMatrix& gate = expert.gate;
    if (!gate.quantized()) return true;
    if (gate.codes.packed_along_rows || gate.codes.first_row != 0 || gate.zero.packed_along_rows) return false;
    return halves == Halves::alternating ? gate.group.rows == 1
                                         : gate.rows() % std::max<std::int64_t>(gate.group.rows, 1) == 0;
  }

  moecl_layer_desc desc = sized<moecl_layer_desc>();

 private:
  void describe(const MoeShape& shape) {
    desc.hidden = shape.hidden;
    desc.intermediate = shape.intermediate;
    desc.shared_intermediate = shape.shared_intermediate;
    desc.experts = shape.experts;
    desc.top_k = shape.router.top_k;
    desc.score = static_cast<std::int32_t>(shape.router.score);
    desc.score_order = static_cast<std::int32_t>(shape.router.order);
    desc.groups = shape.router.groups;
    desc.kept_groups = shape.router.kept_groups;
    desc.group_score = static_cast<std::int32_t>(shape.router.group_score);
    desc.renormalise = shape.router.renormalise ? 1 : 0;
    desc.renormalise_epsilon = shape.router.renormalise_epsilon;
    desc.renormalise_minimum = shape.router.renormalise_minimum;
    desc.scaling_factor = shape.router.scaling_factor;
    desc.mixer_jitter = shape.router.mixer_jitter;
    desc.weight_on_input = shape.router.weight_on_input ? 1 : 0;
    desc.activation = static_cast<std::int32_t>(shape.activation.function);
    desc.activation_alpha = shape.activation.alpha;
    desc.activation_limit = shape.activation.limit;
    desc.activation_no_bias = shape.activation.bias == 0 ? 1 : 0;
    desc.ungated = shape.activation.gated ? 0 : 1;
  }

  /// The rows of all matrices, one after the other.
  moecl_host_array plain(const std::vector<const HostMatrix*>& matrices) {
    if (matrices.empty() || !matrices.front()->present()) return {};
    Bytes& to = memory_.emplace_back();
    for (const HostMatrix* matrix : matrices) {
      const HostMatrix here = matrix->in_memory();
      const std::size_t size = size_bytes(here.dtype);
      for (std::int64_t n = 0; n < here.rows; ++n)
        for (std::int64_t k = 0; k < here.columns; ++k) {
          const auto* from = reinterpret_cast<const unsigned char*>(here.data.memory()) +
                             static_cast<std::size_t>(n * here.row_stride + k * here.column_stride) * size;
          to.insert(to.end(), from, from + size);
        }
    }
    return {to.data(), number_of(matrices.front()->dtype)};
  }

  moecl_host_array codes(const std::vector<const CodeMatrix*>& matrices, moecl_code_layout& layout,
                         std::uint64_t& expert_bytes) {
    const CodeMatrix& first = *matrices.front();
    if (!first.present()) return {};
    layout = {first.unit_bytes,
              first.unit_codes,
              first.row_stride,
              first.column_stride,
              first.first_row,
              first.first_column,
              first.packed_along_rows ? 1 : 0,
              first.interleaved ? 1 : 0};
    expert_bytes = static_cast<std::uint64_t>(first.end_unit()) * static_cast<std::uint64_t>(first.unit_bytes);
    Bytes& to = memory_.emplace_back(expert_bytes * matrices.size());
    for (std::size_t e = 0; e < matrices.size(); ++e)
      matrices[e]->data.read(to.data() + e * expert_bytes, expert_bytes);
    return {to.data(), number_of(first.type)};
  }

  void set(const Matrices& matrices, moecl_host_array& to_plain, moecl_quantized_array& to_quantized) {
    const WeightMatrix& first = *matrices.front();
    std::vector<const HostMatrix*> plain_ones, scales;
    std::vector<const CodeMatrix*> code_ones, zeros;
    for (const WeightMatrix* matrix : matrices) {
      plain_ones.push_back(&matrix->plain), scales.push_back(&matrix->scale);
      code_ones.push_back(&matrix->codes), zeros.push_back(&matrix->zero);
    }
    to_plain = plain(plain_ones);
    if (!first.quantized()) return;
    to_quantized.codes = codes(code_ones, to_quantized.layout, to_quantized.expert_bytes);
    to_quantized.scales = plain(scales);
    to_quantized.zero_points = codes(zeros, to_quantized.zero_layout, to_quantized.zero_expert_bytes);
    to_quantized.zero_add = first.zero_add;
    to_quantized.group_rows = first.group.rows;
    to_quantized.group_columns = first.group.columns == ScaleGroup::whole ? 0 : first.group.columns;
    std::vector<float>& globals = numbers_.emplace_back();
    std::vector<std::int32_t>& index = indices_.emplace_back();
    for (const WeightMatrix* matrix : matrices) {
      globals.push_back(matrix->global_scale);
      if (const auto joined = up_of_.find(matrix); joined != up_of_.end()) globals.push_back(joined->second);
      index.insert(index.end(), matrix->group_index.begin(), matrix->group_index.end());
    }
    to_quantized.global_scales = globals.data();
    if (!index.empty()) to_quantized.group_index = index.data();
  }

  /// The rows of gate and up in one matrix. `along_columns`: for biases, which have a column for each row.
  const HostMatrix* joined(const HostMatrix& gate, const HostMatrix& up, bool alternate, bool along_columns = false) {
    const HostMatrix left = gate.in_memory(), right = up.in_memory();
    const std::int64_t rows = along_columns ? gate.columns : gate.rows, columns = along_columns ? 1 : gate.columns;
    const std::size_t size = size_bytes(gate.dtype);
    Bytes& to = memory_.emplace_back();
    for (std::int64_t n = 0; n < 2 * rows; ++n)
      for (std::int64_t k = 0; k < columns; ++k) {
        const HostMatrix& of = (alternate ? n % 2 == 0 : n < rows) ? left : right;
        const std::int64_t row = alternate ? n / 2 : n % rows;
        const std::int64_t at = along_columns ? row * of.column_stride : row * of.row_stride + k * of.column_stride;
        const auto* from =
            reinterpret_cast<const unsigned char*>(of.data.memory()) + static_cast<std::size_t>(at) * size;
        to.insert(to.end(), from, from + size);
      }
    return &matrices_.emplace_back(reinterpret_cast<const std::byte*>(to.data()), gate.dtype,
                                   along_columns ? 1 : 2 * rows, along_columns ? 2 * rows : columns);
  }

  CodeMatrix joined(const CodeMatrix& gate, const CodeMatrix& up, bool alternate) {
    CodeMatrix both = gate;
    if (!gate.present()) return both;
    const auto row_bytes = static_cast<std::size_t>(
        ((gate.first_column + gate.columns - 1) / gate.unit_columns() * gate.column_stride + 1) * gate.unit_bytes);
    Bytes& to = memory_.emplace_back();
    for (std::int64_t n = 0; n < 2 * gate.rows; ++n) {
      const CodeMatrix& of = (alternate ? n % 2 == 0 : n < gate.rows) ? gate : up;
      const std::int64_t row = alternate ? n / 2 : n % gate.rows;
      to.resize(to.size() + row_bytes);
      (of.data + row * of.row_stride * of.unit_bytes).read(to.data() + to.size() - row_bytes, row_bytes);
    }
    both.data = to.data();
    both.rows = 2 * gate.rows;
    both.row_stride = static_cast<std::int64_t>(row_bytes) / gate.unit_bytes;
    return both;
  }

  const WeightMatrix* joined(const WeightMatrix& gate, const WeightMatrix& up, bool alternate) {
    WeightMatrix& both = weights_.emplace_back(gate);
    if (!gate.quantized()) {
      both.plain = *joined(gate.plain, up.plain, alternate);
      return &both;
    }
    up_of_[&both] = up.global_scale;
    both.codes = joined(gate.codes, up.codes, alternate);
    both.zero = joined(gate.zero, up.zero, alternate);
    if (gate.group.rows != ScaleGroup::whole) both.scale = *joined(gate.scale, up.scale, alternate);
    return &both;
  }

  std::deque<Bytes> memory_;
  std::deque<HostMatrix> matrices_;
  std::deque<WeightMatrix> weights_;
  std::deque<std::vector<float>> numbers_;
  std::deque<std::vector<std::int32_t>> indices_;
  std::map<const WeightMatrix*, float> up_of_;  ///< the global scale of up in a joined matrix
  std::vector<float> up_input_scales_, down_input_scales_;
};

class CRawWeightsTest : public OnEveryDevice {
 protected:
  void SetUp() override {
    ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context_.out()));
    ASSERT_OK(moecl_stream_wrap(context_, device().stream.view().queue, stream_.out()));
  }
  /// Compares a pass with f32 rows to PyTorch's output.
  void check(moecl_layer* layer, const char* golden, const char* output, double tolerance) {
    EXPECT_LE(relative_error(run(layer, golden), golden_values(golden, output)), tolerance);
  }
  std::vector<double> run(moecl_layer* layer, const char* golden) {
    auto info = sized<moecl_layer_info>();
    EXPECT_OK(moecl_layer_describe(layer, &info));
    const std::vector<double> input = golden_values(golden, "hidden_states");
    const std::int64_t tokens = static_cast<std::int64_t>(input.size()) / info.hidden;
    std::uint64_t workspace_bytes = 0;
    EXPECT_OK(moecl_layer_workspace_bytes(layer, tokens, &workspace_bytes));
    const GuardedTensor x = upload(device(), DType::f32, {tokens, info.hidden}, input);
    const GuardedTensor out(device(), DType::f32, {tokens, info.hidden});
    const Buffer workspace(*device().context, workspace_bytes);
    auto args = sized<moecl_forward_args>();
    args.tokens = tokens;
    args.x = {x.view().buffer.handle, x.view().buffer.offset_bytes};
    args.out = {out.view().buffer.handle, out.view().buffer.offset_bytes};
    args.workspace = {workspace.handle(), 0};
    EXPECT_OK(moecl_layer_forward(layer, stream_, &args, 0, nullptr, nullptr));
    return out.values();
  }

  ContextHandle context_;
  StreamHandle stream_;
};
MOECL_ON_EVERY_DEVICE(CRawWeightsTest);

TEST_P(CRawWeightsTest, AreTheGoldensInEveryScheme) {
  int quantized = 0, joined = 0;
  for (const char* golden :
       {"mixtral-e8k2", "gpt-oss-bf16form-e8k4", "gpt-oss-mxfp4-e8k4", "deepseek-v3-fp8block-e8k4",
        "deepseek-v3-fp8block-whole-e4k2", "mixtral-awq-e4k2", "mixtral-ct-fp8-e4k2", "qwen3-moe-ct-int4-e4k2",
        "qwen3-moe-ct-int8-e8k2", "qwen3-moe-ct-nvfp4-e8k2", "qwen3-moe-gptq-e8k4", "qwen2-moe-e16k4", "llama4-e8k1",
        "phimoe-e16k2", "deepseek-v3-e32k8-g8"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_dir(golden));
    const MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
    const MoeWeights weights = find_layer_weights(checkpoint, config);
    quantized += weights.experts.front().down.quantized() ? 1 : 0;
    for (const Halves halves : {Halves::apart, Halves::one_after_the_other, Halves::alternating}) {
      if (!RawLayer::can_join(weights.experts.front(), halves)) continue;
      SCOPED_TRACE(testing::Message() << golden << ", halves " << static_cast<int>(halves));
      joined += halves == Halves::apart ? 0 : 1;
      const RawLayer raw(config.shape, weights, halves);
      auto options = sized<moecl_layer_options>();
      options.dtype = MOECL_F32;
      LayerHandle layer;
      ASSERT_OK(moecl_layer_create(stream_, &raw.desc, &options, layer.out()));
      check(layer, golden, "output", 1e-5);
    }
  }
  EXPECT_EQ(quantized, 9);
  EXPECT_GE(joined, 18);
}

TEST_P(CRawWeightsTest, RowsAreQuantizedAsTheOptionsSay) {
  const char* const golden = "mixtral-ct-fp8-e4k2";
  const Checkpoint checkpoint = Checkpoint::open(golden_dir(golden));
  const MoeLayerConfig config = checkpoint.config().layer(0);
  const RawLayer raw(config.shape, find_layer_weights(checkpoint, config), Halves::apart);
  const OperandQuant stored = stored_options(config, find_layer_weights(checkpoint, config)).activations;
  ASSERT_EQ(stored.type, CodeType::f8_e4m3);
  auto options = sized<moecl_layer_options>();
  options.dtype = MOECL_F32;
  options.activations.dtype = MOECL_F8_E4M3;
  options.activations.group_rows = stored.group.rows;
  options.activations.static_scale = stored.static_scale ? 1 : 0;
  LayerHandle layer;
  ASSERT_OK(moecl_layer_create(stream_, &raw.desc, &options, layer.out()));
  check(layer, golden, "actquant.output_ref", device().caps().correctly_rounded_divide ? 1e-5 : 5e-3);
  auto info = sized<moecl_layer_info>();
  ASSERT_OK(moecl_layer_describe(layer, &info));
  EXPECT_THAT(std::string(info.expert_format), testing::HasSubstr("f8_e4m3"));
  EXPECT_THAT(std::string(info.activations), testing::HasSubstr("f8_e4m3"));
}

TEST_P(CRawWeightsTest, PlainOnesAreQuantizedWhileTheyAreLoaded) {
  const char* const golden = "mixtral-e8k2";
  const Checkpoint checkpoint = Checkpoint::open(golden_dir(golden));
  const MoeLayerConfig config = checkpoint.config().layer(0);
  const RawLayer raw(config.shape, find_layer_weights(checkpoint, config), Halves::apart);
  auto options = sized<moecl_layer_options>();
  options.dtype = MOECL_F32;
  options.quantize = "fp8_w8a16";
  LayerHandle layer;
  ASSERT_OK(moecl_layer_create(stream_, &raw.desc, &options, layer.out()));
  MoeLayerOptions same;  // quantize_on_load_test.cpp compares this layer with the host's codes
  same.quantize = QuantScheme::fp8_w8a16().weights;
  const MoeLayer expected(device().stream, config.shape, find_layer_weights(checkpoint, config), same);
  EXPECT_EQ(run(layer, golden), run_layer(device(), expected, golden_values(golden, "hidden_states")).out);
  auto info = sized<moecl_layer_info>();
  ASSERT_OK(moecl_layer_describe(layer, &info));
  EXPECT_THAT(std::string(info.expert_format), testing::HasSubstr("f8_e4m3"));
  options.quantize = "fp8";
  LayerHandle none;
  EXPECT_EQ(moecl_layer_create(stream_, &raw.desc, &options, none.out()), MOECL_INVALID_ARGUMENT);
  EXPECT_STREQ(moecl_last_error_message(), "options.quantize: \"fp8\" is no scheme");
}

TEST_P(CRawWeightsTest, SayWhatDoesNotFit) {
  const Checkpoint checkpoint = Checkpoint::open(golden_dir("deepseek-v3-fp8block-e8k4"));
  const MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
  RawLayer raw(config.shape, find_layer_weights(checkpoint, config), Halves::apart);
  const moecl_layer_desc good = raw.desc;
  const auto refusal = [&](auto change) {
    moecl_layer_desc desc = good;
    change(desc);
    LayerHandle layer;
    EXPECT_EQ(moecl_layer_create(stream_, &desc, nullptr, layer.out()), MOECL_INVALID_ARGUMENT);
    return std::string(moecl_last_error_message());
  };
  using Desc = moecl_layer_desc&;
  EXPECT_EQ(refusal([](Desc d) { d.quantized_down.scales.data = nullptr; }), "down: there are codes, but no scales");
  EXPECT_EQ(refusal([](Desc d) { d.quantized_up.codes.dtype = MOECL_I32; }), "up: moecl_dtype 7 is none of codes");
  EXPECT_THAT(refusal([](Desc d) { d.quantized_up.scales.dtype = MOECL_I32; }), testing::HasSubstr("up: dtype 7"));
  EXPECT_THAT(refusal([](Desc d) { d.quantized_gate.group_rows = -2; }), testing::HasSubstr("gate: groups of -2 x"));
  EXPECT_THAT(refusal([](Desc d) { d.quantized_gate.layout.unit_codes = 2; }),
              testing::HasSubstr("gate: 2 codes of 8 bits do not fit a unit of 1 bytes"));
  EXPECT_THAT(refusal([](Desc d) { d.down = d.router; }), testing::HasSubstr("give down plain or quantized, not both"));
  EXPECT_THAT(refusal([](Desc d) {
                d.quantized_gate_up = d.quantized_gate;
                d.quantized_gate = d.quantized_up = {};
                d.quantized_gate_up.group_rows = 2 * d.intermediate;
              }),
              testing::HasSubstr("hold rows of gate and of up: give both apart"));
}

}  // namespace
}  // namespace moecl::test
