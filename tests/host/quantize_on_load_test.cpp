// Plain experts quantized on the device while they are loaded: the layer of the same numbers quantized on the host.
#include <gmock/gmock.h>

#include <limits>

#include "tests/devices.hpp"
#include "tests/host/host_codes.hpp"
#include "tests/host/ranked_model.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

class QuantizeOnLoadTest : public OnEveryDevice {
 protected:
  Outputs run(const Model& model, const MoeLayer& layer) const { return run_layer(device(), layer, model.input); }
};
MOECL_ON_EVERY_DEVICE(QuantizeOnLoadTest);

TEST_P(QuantizeOnLoadTest, IsTheLayerOfTheHostsCodesForEveryScheme) {
  // Stored as whole matrices, as halves of one matrix, as transposed halves.
  std::size_t number = 0;
  for (const char* name : {"mixtral-e8k2", "granitemoe-e8k2", "llama4-e8k1"}) {
    std::size_t of_model = number++;
    Model model(name);
    const MoeWeights plain = find_layer_weights(model.checkpoint, model.config);
    const std::vector<double> unquantized = run(model, MoeLayer(device().stream, model.config.shape, plain)).out;
    for (const auto& [scheme_name, scheme] : named_schemes()) {
      if (scheme.activations.quantized()) continue;
      const std::size_t of_scheme = of_model++;
      if (!is_sampled(of_scheme, 3) || !takes(of_scheme / 3)) continue;
      SCOPED_TRACE(testing::Message() << name << ", " << scheme_name);
      const HostCodes codes(plain, scheme.weights);
      const MoeLayer expected(device().stream, model.config.shape, codes.weights);
      model.options.quantize = scheme.weights;
      MoeLayer layer(device().stream, model.config.shape, plain, model.options);
      EXPECT_EQ(layer.report().expert_format, expected.report().expert_format);
      EXPECT_EQ(layer.report().weight_bytes, expected.report().weight_bytes);
      const QuantizationError &error = layer.report().quantization, &truth = codes.error;
      // A quotient next to a tie may go to the other side where division is not correctly rounded.
      const bool exact = device().caps().correctly_rounded_divide;
      EXPECT_NEAR(error.rms_relative(), truth.rms_relative(), (exact ? 1e-5 : 1e-2) * truth.rms_relative());
      EXPECT_NEAR(error.max_relative(), truth.max_relative(), (exact ? 1e-5 : 1e-2) * truth.max_relative());
      const std::vector<double> out = run(model, layer).out;
      EXPECT_LE(relative_error(out, run(model, expected).out), exact ? 1e-5 : 5e-3);
      EXPECT_GT(relative_error(out, unquantized), 1e-3);
      layer.replace_weights(device().stream, plain);
      EXPECT_EQ(run(model, layer).out, out);
      EXPECT_EQ(layer.report().quantization.sum_squared, error.sum_squared);
    }
  }
}

TEST_P(QuantizeOnLoadTest, BlocksOfRowsShareAScale) {
  Model model("mixtral-e8k2");
  model.options.quantize = QuantScheme::fp8_w8a8_block(32, 48).weights;
  const MoeWeights plain = find_layer_weights(model.checkpoint, model.config);
  const HostCodes codes(plain, model.options.quantize);
  const MoeLayer layer(device().stream, model.config.shape, plain, model.options),
      expected(device().stream, model.config.shape, codes.weights);
  EXPECT_LE(relative_error(run(model, layer).out, run(model, expected).out),
            device().caps().correctly_rounded_divide ? 1e-5 : 5e-3);
}

TEST_P(QuantizeOnLoadTest, SaysWhatHasNoCodes) {
  const auto message = [&](const Model& model, const MoeWeights& weights, const OperandQuant& to) {
    MoeLayerOptions options;
    options.quantize = to;
    return std::string(error_of([&] { MoeLayer(device().stream, model.config.shape, weights, options); }).what());
  };
  const Model model("mixtral-e8k2"), packed("mixtral-awq-e4k2");
  const OperandQuant to = QuantScheme::fp8_w8a16().weights;
  EXPECT_THAT(message(packed, find_layer_weights(packed.checkpoint, packed.config), to),
              testing::HasSubstr("the experts are quantized already (u4)"));
  MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
  EXPECT_THAT(message(model, weights, QuantScheme::int4_w4a16(32, true).weights),
              testing::HasSubstr("u4 in groups of 32 with zero points are not made while loading"));
  std::vector<float> numbers(static_cast<std::size_t>(model.config.shape.intermediate * model.hidden()), 1);
  numbers[static_cast<std::size_t>(model.hidden())] = std::numeric_limits<float>::infinity();
  weights.experts[1].up = HostMatrix(numbers.data(), DType::f32, model.config.shape.intermediate, model.hidden());
  EXPECT_THAT(message(model, weights, to), testing::HasSubstr("row 1 holds inf"));
}

}  // namespace
}  // namespace moecl::test
