#include "tests/cases/fused_moe.hpp"

#include <moecl/error.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class FusedMoeTest : public OnEveryDevice {
 protected:
  std::string reason(const FusedMoeOperands& layer, const fused_moe::Config& config) const {
    return fused_moe::reject(layer.args, layer.router, config, device().record());
  }
  bool has_variant(const FusedMoeCase& shape = {}) const {
    const std::int32_t capability = device().caps().nv_compute_capability;
    if (shape.rows && shape.rows->format == CodeType::f8_e4m3 && capability >= 80 && capability < 89) return false;
    return device().caps().preferred_float_width >= 4 || device().caps().nv_compute_capability >= 80;
  }
  /// The variant that runs on this device.
  fused_moe::Config variant() const { return {device().caps().nv_compute_capability >= 80 ? "nv_sm80" : "t0"}; }
  /// Checks every variant that the device takes.
  void check(const FusedMoeCase& shape, std::int32_t down_slices = 0) const {
    SCOPED_TRACE(shape.describe());

    const FusedMoeTruth truth = fused_moe_truth(shape);
    int ran = 0;
    for (const grouped_gemm::Variant& variant : fused_moe::variants()) {
      SCOPED_TRACE(variant.name);
      fused_moe::Config config{variant.name};
      config.down_slices = down_slices;
      const FusedMoeOperands layer(device().stream, shape, config);
      if (!reason(layer, config).empty()) continue;
      const std::uint64_t before = device().context->counters().kernels_launched;
      fused_moe::enqueue(device().stream, layer.args, layer.router, config);
      EXPECT_EQ(device().context->counters().kernels_launched - before, shape.tokens == 0 ? 0U : 1U);
      if (shape.tokens != 0) {
        EXPECT_EQ(layer.values(layer.ids), std::vector<double>(truth.ids.begin(), truth.ids.end()));
        EXPECT_EQ(layer.values(layer.fault), std::vector<double>(4));
      }
      EXPECT_LE(relative_error(layer.values(layer.out), truth.out), shape.tolerance());
      ++ran;
    }
    const bool by_warp_groups = device().caps().nv_sm90a && shape.rows && shape.rows->format == CodeType::f8_e4m3 &&
                                shape.codes->layout == PanelLayout::k_major;
    EXPECT_EQ(ran, by_warp_groups ? 2 : has_variant(shape) ? 1 : 0);
  }
};
MOECL_ON_EVERY_DEVICE(FusedMoeTest);

TEST_P(FusedMoeTest, TakesEveryNumberOfTokensUpTo64) {
  for (const std::int64_t tokens : {5, 0, 1, 2, 4, 5, 16, 17, 33, 64}) check({tokens, 64, 64, 8, 2});
  check({64, 40, 64, 40, 32});  // the most slots
}

TEST_P(FusedMoeTest, TakesOddMatricesAndBiases) {
  check({3, 40, 64, 5, 5, DType::bf16, true});
  check({6, 328, 192, 130, 3, DType::f16, true, true});
  check({9, 72, 128, 1, 1, DType::bf16, false, true});
}

TEST_P(FusedMoeTest, TakesEveryActivation) {
  Activation oai{ActivationFunction::swigluoai};
  oai.gate_is_right = true;
  Activation ungated{ActivationFunction::relu2};
  ungated.gated = false;
  check({4, 64, 64, 6, 2, DType::bf16, true, false, oai});
  check({4, 64, 72, 6, 2, DType::bf16, true, false, ungated});
  check({4, 64, 64, 6, 2, DType::f16, false, false, {ActivationFunction::gelu_tanh}});
}

TEST_P(FusedMoeTest, TakesWeightsOfEveryScheme) {
  for (const auto& [name, shape] : fused_moe_schemes()) {
    if (!has_variant(shape)) continue;
    SCOPED_TRACE(name);
    check(shape);
  }
}

TEST_P(FusedMoeTest, AddsUpSlicesOfK) {
  if (device().caps().nv_compute_capability < 80) return;  // a single work-item has no K-slices
  const std::set<std::string> scales_of_each_kind{"int4_w4a16, zero points", "int8_w8a8", "fp8_w8a8_block",
                                                  "fp8_w8a8_block, k_major"};
  for (const auto& [name, shape] : fused_moe_schemes()) {
    if (!scales_of_each_kind.contains(name) || !has_variant(shape)) continue;
    SCOPED_TRACE(name);
    FusedMoeCase layer = shape;
    layer.intermediate = 384, layer.biased = true;
    check(layer, 3);
  }
  check({1, 328, 448, 9, 3, DType::f16, true, true}, 2);
}

TEST_P(FusedMoeTest, TakesOddMatricesOfCodes) {
  if (!has_variant()) return;
  FusedMoeCase shape{17, 72, 192, 9, 2, DType::f16, true, true};
  shape.column_scales = true;
  for (const std::int64_t tokens : {std::int64_t{8}, std::int64_t{17}})  // one tile of eight rows, and several
    for (const CodeType type : {CodeType::i8, CodeType::f8_e5m2, CodeType::i4}) {
      shape.tokens = tokens, shape.codes = codes_as(type);
      check(shape);
    }
  Activation ungated{ActivationFunction::relu2};
  ungated.gated = false;
  shape = {32, 104, 72, 6, 2, DType::bf16, true, false, ungated};
  shape.codes = codes_as(CodeType::i4, DType::f32, 32);
  check(shape);
}

/// On tensor cores both ways use the same tiles, so the bits agree. Elsewhere the order of the sums differs.
TEST_P(FusedMoeTest, GivesTheRowsOfSeveralLaunches) {
  const bool same_tiles = device().caps().nv_compute_capability >= 80;
  for (const auto& [name, shape] : fused_moe_schemes()) {
    const bool in_k_major = shape.codes && shape.codes->layout == PanelLayout::k_major;
    if (!has_variant(shape) || (in_k_major && !same_tiles)) continue;  // no other product reads k_major
    SCOPED_TRACE(name);
    const FusedMoeOperands layer(device().stream, shape, variant());
    const grouped_gemm::Args &gate_up = layer.args.gate_up, &down = layer.args.down;
    fused_moe::enqueue(device().stream, layer.args, layer.router, variant());
    const std::vector<double> activated = layer.values(gate_up.out), rows = layer.values(down.out);
    expert_sort::Args sort;
    sort.ids = layer.ids;
    sort.end_expert = sort.total_experts = shape.experts;
    sort.row_ends = gate_up.row_ends;
    sort.sorted_slots = gate_up.a_index;
    sort.slot_rows = layer.args.combine.slot_rows;
    expert_sort::enqueue(device().stream, sort);
    const DType a = gate_up.a.dtype;
    const grouped_gemm::Config config{!same_tiles                                   ? ""
                                      : a == DType::f8_e4m3 && gate_up.a_group != 0 ? "nv_sm89_f8_groups_16"
                                      : a == DType::f8_e4m3                         ? "nv_sm89_f8_16"
                                      : a == DType::i8                              ? "nv_sm80_i8_16"
                                      : shape.codes                                 ? "nv_sm80_codes_16"
                                                                                    : "nv_sm80_16"};
    if (shape.rows) quantize_groups::enqueue(device().stream, layer.args.tokens);
    grouped_gemm::enqueue(device().stream, gate_up, config);
    if (shape.rows) quantize_groups::enqueue(device().stream, layer.args.activated);
    grouped_gemm::enqueue(device().stream, down, config);
    for (const auto& [of_one, of_several] :
         {std::pair(activated, layer.values(gate_up.out)), {rows, layer.values(down.out)}}) {
      EXPECT_LE(relative_error(of_one, of_several), same_tiles ? 0 : 0x1p-7);
    }
  }
}

TEST_P(FusedMoeTest, AlwaysGivesTheSameBits) {
  if (!has_variant()) return;  // TakesEveryNumberOfTokensUpTo64 checks that
  const FusedMoeOperands layer(device().stream, {7, 328, 128, 20, 4}, variant());
  std::vector<double> first;
  for (int run = 0; run < 3; ++run) {
    fused_moe::enqueue(device().stream, layer.args, layer.router, variant());
    if (run == 0) first = layer.values(layer.out);
    EXPECT_EQ(layer.values(layer.out), first);
  }
}

TEST_P(FusedMoeTest, MoreWorkGroupsThanAreResidentAreAFault) {
  if (!has_variant()) return;
  fused_moe::Config config = variant();
  config.patience = 50;
  config.groups = 4096;
  const FusedMoeOperands layer(device().stream, {5, 64, 64, 8, 2}, config);
  fused_moe::enqueue(device().stream, layer.args, layer.router, config);
  EXPECT_EQ(layer.values(layer.fault)[0], static_cast<double>(FaultCode::group_late));
  for (const double value : layer.values(layer.out)) EXPECT_TRUE(std::isnan(value));
}

/// Choices of variants. They need no device that runs the variants.
class FusedMoeChoiceTest : public FusedMoeTest {
 protected:
  Device h200() const {
    Device changed = device().record();
    changed.caps.nv_compute_capability = 90;
    changed.caps.compute_units = 132;
    changed.caps.max_work_group_size = 1024;
    changed.caps.static_local_mem_bytes = 227 << 10;
    return changed;
  }
  std::string reason(const FusedMoeOperands& layer) const {
    return fused_moe::reject(layer.args, layer.router, {}, h200());
  }
};
MOECL_ON_EVERY_DEVICE(FusedMoeChoiceTest);

TEST_P(FusedMoeChoiceTest, SaysWhatItDoesNotDo) {
  const FusedMoeCase shape{5, 64, 64, 8, 2};
  const FusedMoeOperands layer(device().stream, shape, {});
  EXPECT_EQ(reason(layer), "");
  const auto refused = [&](const auto& change) {
    FusedMoeOperands changed(device().stream, shape, {});
    change(changed.args);
    return reason(changed);
  };
  using Args = fused_moe::Args;
  EXPECT_THAT(reason(FusedMoeOperands(device().stream, {65, 64, 64, 8, 2}, {})),
              testing::HasSubstr("65 tokens are more than 64"));
  EXPECT_THAT(reason(FusedMoeOperands(device().stream, {5, 64, 64, 8, 2, DType::f32}, {})),
              testing::HasSubstr("rows are f32"));
  EXPECT_THAT(reason(FusedMoeOperands(device().stream, {5, 64, 20, 8, 2}, {})),
              testing::HasSubstr("gate_up: activation: expected gate and up of whole panels"));
  FusedMoeCase codes = shape;
  codes.codes = codes_as(CodeType::f6_e2m3);
  EXPECT_THAT(reason(FusedMoeOperands(device().stream, codes, {})),
              testing::HasSubstr("tensor cores do not multiply bf16 by such f6_e2m3 weights"));
  codes.tokens = 33;
  EXPECT_THAT(reason(FusedMoeOperands(device().stream, codes, {})), testing::HasSubstr("33 tokens are more than 32"));
  EXPECT_THAT(refused([](Args& args) { args.down.weights.type = CodeType::i8; }),
              testing::HasSubstr("weights are bf16 and i8"));
  EXPECT_THAT(refused([](Args& args) { args.down.weights.group_index = args.gating.ids; }),
              testing::HasSubstr("groups of K stand in any order"));
  EXPECT_THAT(refused([](Args& args) { args.down.weights.scale = args.gating.weights; }),
              testing::HasSubstr("other scales"));
  EXPECT_THAT(refused([](Args& args) { args.gate_up.a_scale = args.gating.weights; }),
              testing::HasSubstr("rows are codes that nobody makes"));
  FusedMoeCase quantized = shape;
  quantized.codes = codes_as(CodeType::i8);
  quantized.rows.emplace();
  quantized.rows->format = CodeType::i8;
  EXPECT_EQ(reason(FusedMoeOperands(device().stream, quantized, {})), "");
  const auto refused_rows = [&](const auto& change) {
    FusedMoeOperands changed(device().stream, quantized, {});
    change(changed.args);
    return reason(changed);
  };
  EXPECT_THAT(refused_rows([](Args& args) { args.activated.least_scale = 1; }), testing::HasSubstr("other codes"));
  EXPECT_THAT(refused_rows([](Args& args) { args.tokens.x.stride[0] += 1; }), testing::HasSubstr("no fours"));
  EXPECT_THAT(refused_rows([](Args& args) { args.activated.zero = args.gating.ids; }),
              testing::HasSubstr("share a scale, or have zero points"));
  EXPECT_THAT(refused([](Args& args) { args.down.rows_per_expert = 5; }), testing::HasSubstr("batched"));
  EXPECT_THAT(refused([](Args& args) { args.gate_up.activation.reset(); }), testing::HasSubstr("not activated"));
  EXPECT_THAT(refused([](Args& args) { args.gating.logits.shape[1] = 9; }), testing::HasSubstr("not all experts"));
  EXPECT_THAT(refused([](Args& args) { args.gating.ids.shape[1] = 500; }),
              testing::HasSubstr("2500 slots are more than 2048"));
  EXPECT_THAT(refused([](Args& args) { args.combine.skip_zero_weights = true; }),
              testing::HasSubstr("the sum has more"));
  EXPECT_THAT(refused([](Args& args) { args.combine.out.shape[1] = 63; }), testing::HasSubstr("combine: "));
  const auto on = [&](const Device& device, const fused_moe::Config& config) {
    return fused_moe::reject(layer.args, layer.router, config, device);
  };
  Device other = h200();
  EXPECT_THAT(on(other, {"other"}), testing::HasSubstr("there is no variant 'other'"));
  other.caps.nv_sm90a = false;
  EXPECT_THAT(on(other, {"nv_sm90a"}), testing::HasSubstr("does not build for sm_90a"));
  other.caps.nv_sm90a = true;
  EXPECT_THAT(on(other, {"nv_sm90a"}), testing::HasSubstr("panels in k_major"));
  other.caps.static_local_mem_bytes = 48 << 10;
  EXPECT_THAT(on(other, {}), testing::HasSubstr("bytes of local memory are needed"));
  other.caps.nv_compute_capability = 75;
  EXPECT_THAT(on(other, {}), testing::HasSubstr("no NVIDIA GPU"));
  other.caps.preferred_float_width = 1;
  EXPECT_THAT(on(other, {"t0"}), testing::HasSubstr("at least 4 lanes"));
}

TEST_P(FusedMoeChoiceTest, TakesWarpGroupsForF8InKMajor) {
  Device hopper = h200();
  for (const auto& [name, shape] : fused_moe_schemes()) {
    FusedMoeOperands layer(device().stream, shape, {});
    layer.args.scratch.size_bytes = 1 << 30;  // for more work-groups than the device has; nothing is launched
    const bool fits =
        shape.rows && shape.rows->format == CodeType::f8_e4m3 && shape.codes->layout == PanelLayout::k_major;
    for (const bool builds : {true, false}) {
      hopper.caps.nv_sm90a = builds;
      EXPECT_EQ(fused_moe::plan(layer.args, layer.router, {}, hopper).launch.variant,
                builds && fits ? "nv_sm90a" : "nv_sm80")
          << name;
    }
  }
}

TEST_P(FusedMoeChoiceTest, RejectsStepsThatAreNotOfOneLayer) {
  const FusedMoeCase shape{5, 64, 64, 8, 2};
  const FusedMoeOperands other(device().stream, shape, variant());
  const auto reason = [&](const auto& change) -> std::string {
    FusedMoeOperands layer(device().stream, shape, variant());
    change(layer.args);
    try {
      fused_moe::enqueue(device().stream, layer.args, layer.router, variant());
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  using Args = fused_moe::Args;
  if (!has_variant()) {
    EXPECT_THAT(reason([](Args&) {}), testing::HasSubstr("at least 4 lanes"));
    return;
  }
  EXPECT_THAT(reason([&](Args& args) { args.router.a = other.args.router.a; }), testing::HasSubstr("other tokens"));
  EXPECT_THAT(reason([&](Args& args) { args.gating.logits = other.args.gating.logits; }),
              testing::HasSubstr("not the router's"));
  EXPECT_THAT(reason([&](Args& args) { args.down.a = other.args.down.a; }), testing::HasSubstr("of other rows"));
  EXPECT_THAT(reason([&](Args& args) { args.combine.rows = other.args.combine.rows; }),
              testing::HasSubstr("other rows or weights"));
  EXPECT_THAT(reason([&](Args& args) { args.scratch.size_bytes = 8; }), testing::HasSubstr("scratch: "));
  EXPECT_THAT(reason([&](Args& args) { args.scratch.offset_bytes += 8; }), testing::HasSubstr("no multiple of 16"));
}

}  // namespace
}  // namespace moecl::test
