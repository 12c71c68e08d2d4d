// Families without a golden: a random checkpoint in the released layout, run, against the block computed from the
// file's tensors by their published names and from the family's published formulas, in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/random_checkpoint.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>
#include <utility>

#include "host/checkpoint/model_families.hpp"
#include "tests/host/deepseek_references.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"
#include "tests/host/one_by_one_references.hpp"
#include "tests/host/stacked_references.hpp"
#include "tests/host/w1_w3_w2_references.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;

constexpr std::size_t hidden = reference_hidden, tokens = 7;

std::vector<Family> families() {
  std::vector<Family> all;
  for (const auto references : {one_by_one_references, deepseek_references, w1_w3_w2_references, stacked_references})
    for (Family& family : references()) all.push_back(std::move(family));
  return all;
}

TEST(FamiliesTest, EveryRowOfTheTableIsRunAgainstAReference) {
  std::set<const ModelFamily*> tested;
  const auto add = [&](const json& whole) {
    const json* text = &whole;
    for (const char* member : {"thinker_config", "text_config"})
      if (text->contains(member)) text = &(*text)[member];
    tested.insert(find_family((*text)["model_type"].get<std::string>()));
  };
  for (const Family& family : families()) add(family.config);
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens")))
    add(json::parse(read_text(entry.path() / "config.json")));
  for (const ModelFamily& family : model_families()) EXPECT_TRUE(tested.contains(&family)) << family.model_types[0];
}

class FamilyLayersTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(FamilyLayersTest);

TEST_P(FamilyLayersTest, ComputeWhatTheFamilysFormulasSay) {
  const Row input = rounded(DType::f32, normal(tokens * hidden, 5));
  std::uint64_t seed = 1;
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    write_random_checkpoint(dir.file("model"), {family.config.dump(), 1, 0, DType::f32, seed++});
    const Checkpoint checkpoint = Checkpoint::open(dir.file("model"));
    ASSERT_EQ(checkpoint.config().first_moe_layer(), family.layer);
    const MoeLayerConfig config = checkpoint.config().layer(family.layer);
    const Block block(dir.file("model"), family);
    Row expected;
    for (std::size_t t = 0; t < tokens; ++t) {
      const Row out = block.forward({input.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                                     input.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden)});
      expected.insert(expected.end(), out.begin(), out.end());
    }

    const MoeLayer layer(device().stream, config.shape, find_layer_weights(checkpoint, config));
    EXPECT_LE(relative_error(run_layer(device(), layer, input).out, expected), 1e-5);
  }
}

}  // namespace
}  // namespace moecl::test
