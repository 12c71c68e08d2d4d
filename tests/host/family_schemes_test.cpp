// Every cell of the table of families and schemes (host/FAMILIES.md): a small random model of each family, with each
// scheme, against what its codes mean in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/random_checkpoint.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/model_families.hpp"
#include "host/checkpoint/released_form.hpp"
#include "tests/host/files.hpp"
#include "tests/host/host_codes.hpp"
#include "tests/host/layer_run.hpp"
#include "tests/oracle/moe_block.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t hidden = 64, tokens = 5;

/// The smallest config.json of a family: the fields that have no default, and sizes.
std::string small_config(const ModelFamily& family) {
  nlohmann::json config = {
      {"model_type", family.model_types[0]}, {"hidden_size", hidden}, {"num_hidden_layers", 8}, {"hidden_act", "silu"}};
  const auto set = [&config](const auto& field, std::int64_t value) {
    if (field.names[0] != nullptr) config[pointer_to(field.names[0])] = value;
  };
  set(family.experts, 4);
  set(family.top_k, family.weight_on_input ? 1 : 2);
  set(family.intermediate, 32);
  set(family.groups, 1);
  set(family.kept_groups, 1);
  set(family.shared_experts, 1);
  set(family.shared_width, 32);
  return config.dump();
}

/// A checkpoint of the smallest model of a family, and its first layer with experts.
struct SmallModel {
  TempDir dir;
  Checkpoint checkpoint;
  MoeLayerConfig config;
  MoeWeights weights;

  SmallModel(const ModelFamily& family, const std::optional<QuantScheme>& scheme)
      : checkpoint(written(dir.file("model"), family, scheme)),
        config(checkpoint.config().layer(checkpoint.config().first_moe_layer())),
        weights(find_layer_weights(checkpoint, config)) {}

  static Checkpoint written(const std::string& path, const ModelFamily& family,
                            const std::optional<QuantScheme>& scheme) {
    RandomCheckpoint checkpoint;
    checkpoint.config_json = small_config(family);
    checkpoint.scheme = scheme;
    write_random_checkpoint(path, checkpoint);
    return Checkpoint::open(path);
  }
};

class FamilySchemesTest : public testing::Test {
 protected:
  FamilySchemesTest() {
    const std::vector<double> x = rounded(DType::f32, normal(tokens * hidden, 3));
    x_.assign(x.begin(), x.end());
  }
  Outputs run(const SmallModel& model, const MoeLayerOptions& options, MoeLayerReport& report) {
    const MoeLayer layer(device_.stream, model.config.shape, model.weights, options);
    report = layer.report();
    return run_layer(device_, layer, {x_.begin(), x_.end()});
  }
  /// Checks a layer's output against the numbers that `codes` stand for.
  void check(const SmallModel& model, const MoeWeights& codes, const MoeLayerOptions& options) {
    MoeLayerReport report;
    const Outputs got = run(model, options, report);
    EXPECT_EQ(report.activations.rfind(describe(options.activations), 0), 0U) << report.activations;
    const oracle::MoeBlockRows truth = oracle::moe_block(
        {model.config.shape, codes, options.activations, options.shared_activations}, x_, got.ids, got.weights);
    std::vector<double> rows, expected;
    for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token)
      if (truth.decided[token])
        for (std::size_t i = token * hidden; i < (token + 1) * hidden; ++i)
          rows.push_back(got.out[i]), expected.push_back(truth.out[i]);
    EXPECT_LE(relative_error(rows, expected), 1e-5);
    compared_ += rows.size();
    offered_ += got.out.size();
  }

  TestDevice& device_ = *devices().front();  // other tests try the kernels on every device
  std::vector<float> x_;
  std::size_t compared_ = 0, offered_ = 0;
};

TEST_F(FamilySchemesTest, EveryFamilyRunsWithEveryScheme) {
  std::size_t number = 0;
  for (const ModelFamily& family : model_families()) {
    std::size_t of_family = number++;
    const SmallModel plain(family, {});
    MoeLayerReport report;
    const std::vector<double> unquantized = run(plain, {}, report).out;
    for (const auto& [name, scheme] : named_schemes()) {
      if (!is_sampled(of_family++, 4)) continue;
      SCOPED_TRACE(testing::Message() << family.model_types[0] << ", " << name);
      MoeLayerOptions options;
      options.quantize = scheme.weights;
      options.activations = scheme.activations;
      EXPECT_GT(relative_error(run(plain, options, report).out, unquantized), 1e-4) << "nothing is quantized";
      check(plain, HostCodes(plain.weights, scheme.weights).weights, options);

      if (!is_released(scheme, has_stacked_experts(family), family.shared_names.name != nullptr,
                       family.expert_names[0].flat)) {
        EXPECT_EQ(error_of([&, &released = scheme] { SmallModel(family, released); }).code(), ErrorCode::unsupported);
        continue;
      }
      const SmallModel released(family, scheme);
      EXPECT_TRUE(released.weights.experts.front().down.quantized());
      options = {};
      options.activations = released.config.expert_scheme().activations;
      options.shared_activations = released.config.shared_scheme().activations;
      EXPECT_EQ(describe(options.activations), describe(scheme.activations));
      check(released, released.weights, options);
    }
  }
  EXPECT_GT(compared_, offered_ * 9 / 10) << "too many rows stand near a tie";
}

}  // namespace
}  // namespace moecl::test
