// Quantized activations of a whole layer against the same arithmetic in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/quantize_groups.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using quantize_groups::ScaleRule;

/// What the codes of a row stand for.
std::vector<float> quantized(const std::vector<float>& row, const OperandQuant& how, float static_scale) {
  quantize_groups::Args rules;
  rules.format = *how.type;
  rules.rule = how.scale == ScaleFormat::e8m0   ? ScaleRule::mx_floor
               : how.scale == ScaleFormat::e4m3 ? ScaleRule::e4m3
               : how.static_scale               ? ScaleRule::given
                                                : ScaleRule::ratio;
  if (rules.rule == ScaleRule::e4m3 && how.static_scale) rules.global_scale = 1 / static_scale;
  if (rules.rule == ScaleRule::given) rules.quotient = quantize_groups::Quotient::reciprocal;
  const std::size_t group =
      how.group.columns == ScaleGroup::whole ? row.size() : static_cast<std::size_t>(how.group.columns);
  std::vector<float> values;
  for (std::size_t first = 0; first < row.size(); first += group) {
    const std::vector<float> part(row.begin() + static_cast<std::ptrdiff_t>(first),
                                  row.begin() + static_cast<std::ptrdiff_t>(std::min(first + group, row.size())));
    const std::vector<float> numbers = oracle::quantize_group(part, rules, static_scale).values;
    values.insert(values.end(), numbers.begin(), numbers.end());
  }
  return values;
}

std::vector<float> product(const WeightMatrix& weights, const std::vector<float>& x) {
  std::vector<float> out;
  for (std::int64_t n = 0; n < weights.rows(); ++n) {
    double sum = 0;
    for (std::int64_t k = 0; k < weights.columns(); ++k)
      sum += weight_element(weights, n, k) * x[static_cast<std::size_t>(k)];
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

class ActivationQuantTest : public OnEveryDevice {
 protected:
  ActivationQuantTest()
      : checkpoint_(Checkpoint::open(data_path("goldens/mixtral-e8k2"))),
        config_(checkpoint_.config().layer(0)),
        weights_(find_layer_weights(checkpoint_, config_)) {
    for (ExpertMatrices& expert : weights_.experts) expert.gate_up_input_scale = expert.down_input_scale = static_scale;
    const auto tokens = static_cast<std::size_t>(rows);
    const std::vector<double> x =
        rounded(DType::f32, normal(tokens * static_cast<std::size_t>(config_.shape.hidden), 1));
    x_.assign(x.begin(), x.end());
  }

  struct Outputs {
    std::vector<double> out, ids, weights;
  };
  Outputs run(const MoeLayerOptions& options) const {
    const MoeLayer layer(device().stream, config_.shape, weights_, options);
    const std::int64_t hidden = config_.shape.hidden;
    const GuardedTensor x(device(), DType::f32, {rows, hidden}, x_), out(device(), DType::f32, {rows, hidden}),
        ids(device(), DType::i32, {rows, 2}), weights(device(), DType::f32, {rows, 2});
    const Buffer workspace(*device().context, layer.workspace_bytes(rows));
    MoeLayer::Forward args;
    args.x = x;
    args.out = out;
    args.topk_ids = ids;
    args.topk_weights = weights;
    args.workspace = workspace.view();
    layer.forward(device().stream, args);
    return {out.values(), ids.values(), weights.values()};
  }
  /// Of the router's choice in `chosen`, which plain activations decide.
  std::vector<double> expected(const OperandQuant& how, const Outputs& chosen) const {
    const auto hidden = static_cast<std::size_t>(config_.shape.hidden);
    std::vector<double> out(x_.size());
    for (std::size_t slot = 0; slot < chosen.ids.size(); ++slot) {
      const ExpertMatrices& expert = weights_.experts[static_cast<std::size_t>(chosen.ids[slot])];
      const auto first = x_.begin() + static_cast<std::ptrdiff_t>(slot / 2 * hidden);
      const std::vector<float> x = quantized({first, first + static_cast<std::ptrdiff_t>(hidden)}, how, static_scale);
      std::vector<float> gate = product(expert.gate, x);
      const std::vector<float> up = product(expert.up, x);
      for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] = static_cast<float>(gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i]);
      const std::vector<float> y = product(expert.down, quantized(gate, how, static_scale));
      for (std::size_t h = 0; h < hidden; ++h) out[slot / 2 * hidden + h] += chosen.weights[slot] * y[h];
    }
    return out;
  }

  static constexpr std::int64_t rows = 9;
  static constexpr float static_scale = 0.01F;
  Checkpoint checkpoint_;
  MoeLayerConfig config_;
  MoeWeights weights_;
  std::vector<float> x_;
};
MOECL_ON_EVERY_DEVICE(ActivationQuantTest);

TEST_P(ActivationQuantTest, EveryFormatIsThatOfTheOracleInEveryLayout) {
  const Outputs plain = run({});
  OperandQuant given{CodeType::f8_e4m3, ScaleGroup::per_tensor()}, nvfp4 = QuantScheme::nvfp4();
  given.static_scale = nvfp4.static_scale = true;
  for (const OperandQuant& activations :
       {OperandQuant{CodeType::i8, ScaleGroup::per_token()}, OperandQuant{CodeType::f8_e4m3, ScaleGroup::per_token()},
        OperandQuant{CodeType::f8_e5m2, ScaleGroup::per_token()},
        OperandQuant{CodeType::f8_e4m3, ScaleGroup::per_group(64)}, QuantScheme::mx(CodeType::f8_e4m3),
        QuantScheme::mx(CodeType::f6_e2m3), QuantScheme::mx(CodeType::f4_e2m1), QuantScheme::nvfp4(), nvfp4, given}) {
    SCOPED_TRACE(describe(activations));
    const std::vector<double> truth = expected(activations, plain);
    EXPECT_GT(relative_error(plain.out, truth), 1e-3) << "the oracle does not quantize";
    MoeLayerOptions options;
    options.activations = activations;
    // A quotient next to a tie may go to the other side where division is not correctly rounded.
    const double tolerance = device().caps().correctly_rounded_divide ? 1e-5 : 5e-3;
    const Outputs standard = run(options);
    EXPECT_EQ(standard.ids, plain.ids) << "the router sees plain activations";
    EXPECT_LE(relative_error(standard.out, truth), tolerance);
    options.layout = ExpertLayout::batched;
    for (const auto backend : {dense_backend::Backend::grouped_gemm, dense_backend::Backend::clblast}) {
      options.dense_backend = backend;
      EXPECT_LE(relative_error(run(options).out, truth), tolerance) << "batched, " << dense_backend::name(backend);
    }
  }
}

TEST_P(ActivationQuantTest, SaysWhatItCannotDo) {
  const auto message = [&](const OperandQuant& activations) {
    MoeLayerOptions options;
    options.activations = activations;
    return std::string(error_of([&] { MoeLayer(device().stream, config_.shape, weights_, options); }).what());
  };
  for (ExpertMatrices& expert : weights_.experts) expert.gate_up_input_scale = 0;
  OperandQuant asymmetric{CodeType::i8, ScaleGroup::per_token()}, given{CodeType::f8_e4m3, ScaleGroup::per_tensor()};
  asymmetric.zero_points = true;
  given.static_scale = true;
  EXPECT_THAT(message(asymmetric), testing::HasSubstr("activations as i8 per row with zero points are not supported"));
  EXPECT_THAT(message(given), testing::HasSubstr("need a scale beside the weights"));
}

}  // namespace
}  // namespace moecl::test
