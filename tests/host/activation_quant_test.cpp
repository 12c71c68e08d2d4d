// Quantized activations of a whole layer against the same arithmetic in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"
#include "tests/oracle/moe_block.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

class ActivationQuantTest : public OnEveryDevice {
 protected:
  ActivationQuantTest()
      : checkpoint_(Checkpoint::open(data_path("goldens/mixtral-e8k2"))),
        config_(checkpoint_.config().layer(0)),
        weights_(find_layer_weights(checkpoint_, config_)) {
    float scale = 0.01F;  // a different one for every product of every expert
    for (ExpertMatrices& expert : weights_.experts) {
      expert.gate_up_input_scale = scale;
      expert.down_input_scale = scale / 3;
      scale *= 1.5F;
    }
    const auto tokens = static_cast<std::size_t>(rows);
    const std::vector<double> x =
        rounded(DType::f32, normal(tokens * static_cast<std::size_t>(config_.shape.hidden), 1));
    x_.assign(x.begin(), x.end());
  }

  Outputs run(const MoeLayerOptions& options) const {
    return run_layer(device(), MoeLayer(device().stream, config_.shape, weights_, options), {x_.begin(), x_.end()});
  }
  /// The oracle's output for the experts in `chosen`, which the router chose from plain activations.
  std::vector<double> expected(const OperandQuant& how, const Outputs& chosen) const {
    return oracle::moe_block({config_.shape, weights_, how, {}}, x_, chosen.ids, chosen.weights).out;
  }

  static constexpr std::int64_t rows = 9;
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
  OperandQuant limited{CodeType::f8_e4m3, ScaleGroup::per_token()};
  limited.most_amax = 1.5F, limited.least_scale = 0.003F;
  const auto rounded = [](OperandQuant how, ScaleRounding rounding) {
    how.rounding = rounding;
    return how;
  };
  std::size_t number = 0;
  for (const OperandQuant& activations :
       {OperandQuant{CodeType::i8, ScaleGroup::per_token()}, QuantScheme::int8_w8a8_asymmetric().activations,
        OperandQuant{CodeType::f8_e4m3, ScaleGroup::per_token()},
        OperandQuant{CodeType::f8_e5m2, ScaleGroup::per_token()},
        OperandQuant{CodeType::f8_e4m3, ScaleGroup::per_group(64)}, QuantScheme::mx(CodeType::f8_e4m3),
        QuantScheme::mx(CodeType::f6_e2m3), QuantScheme::mx(CodeType::f4_e2m1), QuantScheme::nvfp4(), nvfp4, given,
        limited, rounded(QuantScheme::fp8_w8a8_block(64, 64).activations, ScaleRounding::ratio_up),
        rounded(QuantScheme::mx(CodeType::f8_e4m3), ScaleRounding::ratio_up),
        rounded(QuantScheme::mx(CodeType::f4_e2m1), ScaleRounding::amax_even),
        rounded(QuantScheme::mx(CodeType::f6_e2m3), ScaleRounding::amax_nearest),
        rounded(QuantScheme::mx(CodeType::f4_e2m1), ScaleRounding::amax_up)}) {
    const std::size_t of_format = number++;
    if (!takes(of_format)) continue;
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
    if (!is_sampled(of_format, 3)) continue;
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
  OperandQuant asymmetric{CodeType::i4, ScaleGroup::per_token()}, given{CodeType::f8_e4m3, ScaleGroup::per_tensor()};
  asymmetric.zero_points = true;
  given.static_scale = true;
  EXPECT_THAT(message(asymmetric), testing::HasSubstr("activations as i4 per row with zero points are not supported"));
  EXPECT_THAT(message(given), testing::HasSubstr("need a scale beside the weights"));
}

}  // namespace
}  // namespace moecl::test
