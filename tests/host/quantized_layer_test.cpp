// Layers whose experts are quantized: against the layer of the same numbers in f32, and what they hold on the device.
#include <moecl/error.hpp>
#include <moecl/moe_layer.hpp>

#include <gmock/gmock.h>

#include <deque>
#include <tuple>
#include <utility>

#include "tests/cases/quantized_matrices.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t hidden = 96, inter = 72, shared_inter = 40, tokens = 9;
constexpr std::int32_t experts = 4;

MoeShape shape_of_layer() {
  MoeShape shape;
  shape.hidden = hidden, shape.intermediate = inter, shape.experts = experts;
  shape.router.top_k = 2;
  shape.shared_intermediate = shared_inter;
  return shape;
}

/// A layer's weights, quantized, and the numbers that they mean.
class Weights {
 public:
  enum class Scales : std::uint8_t { as_they_are, whole_columns };

  explicit Weights(const QuantizedCase& kind, Scales scales = Scales::as_they_are, bool global = false)
      : kind_(kind), scales_(scales), global_(global), router_(encode(DType::f32, normal(experts * hidden, 1))) {
    quantized.router = plain.router = {router_.data(), DType::f32, experts, hidden};
    for (int i = 0; i < experts; ++i) {
      quantized.experts.emplace_back(), plain.experts.emplace_back();
      add(quantized.experts.back(), plain.experts.back(), inter);
    }
    add(quantized.shared, plain.shared, shared_inter);
  }

  MoeWeights quantized, plain;

 private:
  void add(ExpertMatrices& codes, ExpertMatrices& numbers, std::int64_t width) {
    std::tie(codes.gate, numbers.gate) = matrix(width, hidden);
    std::tie(codes.up, numbers.up) = matrix(width, hidden);
    std::tie(codes.down, numbers.down) = matrix(hidden, width);
  }
  std::pair<WeightMatrix, WeightMatrix> matrix(std::int64_t n, std::int64_t k) {
    QuantizedCase kind = kind_;
    if (scales_ == Scales::whole_columns) kind.group = k;
    QuantizedMatrix& made = matrices_.emplace_back(kind, n, k, ++seed_);
    if (scales_ == Scales::whole_columns) made.weights.group.columns = ScaleGroup::whole;
    if (global_) made.weights.global_scale = 0.5F + static_cast<float>(seed_ % 5) / 4;
    for (double& value : made.values) value *= made.weights.global_scale;
    const std::vector<unsigned char>& numbers = numbers_.emplace_back(encode(DType::f32, made.values));
    return {made.weights, HostMatrix(numbers.data(), DType::f32, n, k)};
  }

  QuantizedCase kind_;
  Scales scales_;
  bool global_;
  std::uint64_t seed_ = 0;
  std::vector<unsigned char> router_;
  std::deque<QuantizedMatrix> matrices_;
  std::deque<std::vector<unsigned char>> numbers_;
};

class QuantizedLayerTest : public OnEveryDevice {
 protected:
  std::vector<double> run(const MoeLayer& layer) const {
    return run_layer(device(), layer, normal(tokens * hidden, 2)).out;
  }
  MoeLayerReport check(const Weights& weights, const MoeLayerOptions& options = {}) const {
    const MoeLayer quantized(device().stream, shape_of_layer(), weights.quantized, options),
        plain(device().stream, shape_of_layer(), weights.plain, options);
    EXPECT_LE(relative_error(run(quantized), run(plain)), 1e-5) << quantized.report().expert_format;
    return quantized.report();
  }
};
MOECL_ON_EVERY_DEVICE(QuantizedLayerTest);

/// The n columns of an [n, k] matrix, padded to whole panels of 64.
std::uint64_t padded(std::int64_t n) { return static_cast<std::uint64_t>((n + 63) / 64 * 64); }
/// Bytes of all experts and shared experts, at `bytes(n, k)` for each matrix, and of the router in f32.
template <class Bytes>
std::uint64_t layer_bytes(Bytes bytes) {
  return experts * (bytes(2 * inter, hidden) + bytes(hidden, inter)) + bytes(2 * shared_inter, hidden) +
         bytes(hidden, shared_inter) + padded(experts) * hidden * 4;
}
std::uint64_t groups(std::int64_t k, std::int64_t group) { return static_cast<std::uint64_t>((k + group - 1) / group); }

TEST_P(QuantizedLayerTest, HoldsInt4WithZeroPointsInItsBits) {
  const MoeLayerReport report = check(Weights({CodeType::u4, DType::f16, 32, 0, true, 1, CodePlacing::words_n_awq}));
  EXPECT_EQ(report.expert_format, "i4, f16 scales of 32 columns, zero points");
  EXPECT_EQ(report.shared_format, report.expert_format);
  EXPECT_EQ(report.weight_bytes, layer_bytes([](std::int64_t n, std::int64_t k) {
              return padded(n) * static_cast<std::uint64_t>(k) / 2 + padded(n) * groups(k, 32) * (2 + 2);
            }));
}

TEST_P(QuantizedLayerTest, HoldsMxAndNvfp4InTheirBits) {
  MoeLayerReport report = check(Weights({CodeType::f4_e2m1, DType::u8, 32}));
  EXPECT_EQ(report.expert_format, "f4_e2m1, e8m0 scales of 32 columns");
  EXPECT_EQ(report.weight_bytes, layer_bytes([](std::int64_t n, std::int64_t k) {
              return padded(n) * static_cast<std::uint64_t>(k) / 2 + padded(n) * groups(k, 32);
            }));
  report = check(Weights({CodeType::f6_e3m2, DType::u8, 32}));
  EXPECT_EQ(report.weight_bytes, layer_bytes([](std::int64_t n, std::int64_t k) {
              return padded(n) * static_cast<std::uint64_t>(k) * 3 / 4 + padded(n) * groups(k, 32);
            }));
  // Gate and up with global scales of their own.
  report = check(Weights({CodeType::f4_e2m1, DType::f8_e4m3, 16}, Weights::Scales::as_they_are, true));
  EXPECT_EQ(report.expert_format, "f4_e2m1, f8_e4m3 scales of 16 columns, scales of output channels");
  EXPECT_EQ(report.weight_bytes, layer_bytes([](std::int64_t n, std::int64_t k) {
              return padded(n) * static_cast<std::uint64_t>(k) / 2 + padded(n) * groups(k, 16) +
                     4 * static_cast<std::uint64_t>(n);
            }));
}

TEST_P(QuantizedLayerTest, HoldsFp8AndInt8WithScalesOfChannelsAndBlocks) {
  for (const CodeType type : {CodeType::f8_e4m3, CodeType::i8}) {
    const MoeLayerReport report = check(Weights({type, DType::bf16, 1}, Weights::Scales::whole_columns));
    EXPECT_EQ(report.expert_format, std::string(name(type)) + ", scales of output channels");
    EXPECT_EQ(report.weight_bytes, layer_bytes([](std::int64_t n, std::int64_t k) {
                return padded(n) * static_cast<std::uint64_t>(k) + 4 * static_cast<std::uint64_t>(n);
              }));
  }
  EXPECT_EQ(check(Weights({CodeType::f8_e4m3, DType::f32, 32, 0, false, 32})).expert_format,
            "f8_e4m3, f32 scales of 32 columns");
  EXPECT_EQ(check(Weights({CodeType::f8_e4m3, DType::u8, 32, 0, false, 32})).expert_format,
            "f8_e4m3, e8m0 scales of 32 columns");
}

TEST_P(QuantizedLayerTest, TakesGroupsInAnyOrderThatGateAndUpDoNotShare) {
  const MoeLayerReport report = check(Weights({CodeType::u4, DType::f16, 0, 3, true, 1, CodePlacing::words_k, 1}));
  EXPECT_EQ(report.expert_format,
            "i4, f16 scales of 9 groups by index, zero points; down i4, f16 scales of 3 groups by index, zero points");
}

TEST_P(QuantizedLayerTest, TakesTheBatchedLayout) {
  MoeLayerOptions options;
  options.layout = ExpertLayout::batched;
  EXPECT_EQ(check(Weights({CodeType::i4, DType::bf16, 32}), options).batched_backend, "grouped_gemm");
}

TEST_P(QuantizedLayerTest, SaysWhatDoesNotFit) {
  const auto reason = [&](auto change) -> std::string {
    Weights weights({CodeType::u4, DType::f16, 32, 0, true});
    change(weights.quantized);
    try {
      const MoeLayer layer(device().stream, shape_of_layer(), weights.quantized);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_THAT(reason([](MoeWeights& w) { w.experts[1].up.scale.columns = 2; }),
              HasSubstr("expert 1 up: expected scales [72, 3] of [1, 32] elements each, got [72, 2]"));
  EXPECT_THAT(reason([](MoeWeights& w) { w.experts[2].down.codes.columns = 70; }),
              HasSubstr("expert 2 down: expected [96, 72], got [96, 70] of u4"));
  EXPECT_THAT(reason([](MoeWeights& w) { w.experts[3].down.zero.data = nullptr; }), HasSubstr("expected one format"));
  EXPECT_THAT(reason([](MoeWeights& w) { w.experts[0].gate.scale.dtype = DType::i8; }),
              HasSubstr("expert 0 gate: expected scales of f32, f16, bf16, f8_e4m3 or e8m0 in u8, got i8"));
  EXPECT_THAT(reason([](MoeWeights& w) { w.experts[0].gate.group_index.assign(hidden, 7); }),
              HasSubstr("expert 0 gate: group 7 of column 0 is not in [0, 3)"));
}

}  // namespace
}  // namespace moecl::test
