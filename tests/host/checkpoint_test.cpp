#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <map>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* index_name = "model.safetensors.index.json";

/// A golden checkpoint split over three shards, tensor by tensor, as large models are released.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : single_(Checkpoint::open(data_path("goldens/qwen3-moe-e64k8"))) {
    const auto file = SafetensorsFile::open(single_.dir() + "/model.safetensors");
    std::map<std::string, std::vector<HostTensor>> shards;
    for (const std::string& name : file.names()) {
      const std::string shard = "model-0000" + std::to_string(names_.size() % 3 + 1) + "-of-00003.safetensors";
      names_.push_back(name);
      index_["weight_map"][name] = shard;
      shards[shard].push_back(file.tensor(name));
    }
    for (const auto& [shard, tensors] : shards) write_safetensors(dir_.file(shard), tensors);
    std::filesystem::copy_file(single_.dir() + "/config.json", dir_.file("config.json"));
  }

  Checkpoint open_sharded() {
    write_text(dir_.file(index_name), index_.dump());
    return Checkpoint::open(dir_.path());
  }
  std::string shard_of(const std::string& name) { return dir_.file(index_["weight_map"][name]); }

  TempDir dir_;
  Checkpoint single_;
  std::vector<std::string> names_;
  json index_;
};

TEST_F(CheckpointTest, ShardsHoldTheSameTensorsAsOneFile) {
  const Checkpoint sharded = open_sharded();
  EXPECT_EQ(sharded.config().family, "qwen3_moe");
  EXPECT_THAT(sharded.files(), testing::IsSupersetOf({dir_.file("model.safetensors.index.json"), shard_of(names_[0]),
                                                      shard_of(names_[1]), shard_of(names_[2])}));
  ASSERT_GT(names_.size(), 190U);
  for (const std::string& name : names_) {
    const HostTensor a = single_.tensor(name).in_memory(), b = sharded.tensor(name).in_memory();
    ASSERT_EQ(a.describe(), b.describe());
    ASSERT_EQ(std::memcmp(a.data.memory(), b.data.memory(), a.size_bytes), 0) << name;
  }
  EXPECT_TRUE(sharded.has(names_[0]));
  for (const Checkpoint* checkpoint : std::initializer_list<const Checkpoint*>{&sharded, &single_}) {
    EXPECT_FALSE(checkpoint->has("nothing"));
    const Error error = error_of([&] { checkpoint->tensor("nothing"); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_data);
    EXPECT_THAT(error.what(), HasSubstr(checkpoint->dir() + " has no tensor \"nothing\""));
  }
}

TEST_F(CheckpointTest, OpensOnlyTheShardsItNeeds) {
  const std::string gone = shard_of("model.layers.0.mlp.experts.9.up_proj.weight");
  std::filesystem::remove(gone);
  const Checkpoint sharded = open_sharded();
  for (const std::string& name : names_) {
    if (shard_of(name) != gone) {
      EXPECT_EQ(sharded.tensor(name).describe(), single_.tensor(name).describe());
      continue;
    }
    const Error error = error_of([&] { sharded.tensor(name); });
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    EXPECT_THAT(error.what(), HasSubstr(gone));
  }
}

TEST_F(CheckpointTest, IndexThatNamesTheWrongShard) {
  const std::string a = names_[0], b = names_[1];
  std::swap(index_["weight_map"][a], index_["weight_map"][b]);
  const Checkpoint sharded = open_sharded();
  const Error error = error_of([&] { sharded.tensor(a); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_data);
  EXPECT_THAT(error.what(), HasSubstr("the index puts tensor \"" + a + "\" in model-00002-of-00003.safetensors"));
}

TEST_F(CheckpointTest, HostileIndexGetsAClearError) {
  const json cases[] = {json::object(),
                        {{"weight_map", 3}},
                        {{"weight_map", {{"x", 3}}}},
                        {{"weight_map", {{"x", ""}}}},
                        {{"weight_map", {{"x", "."}}}},
                        {{"weight_map", {{"x", ".."}}}},
                        {{"weight_map", {{"x", "/etc/passwd"}}}},
                        {{"weight_map", {{"x", "../other/model.safetensors"}}}},
                        {{"weight_map", {{"x", "sub/model.safetensors"}}}},
                        {{"weight_map", {{"x", std::string("a\0b", 3)}}}}};
  for (const json& index : cases) {
    SCOPED_TRACE(index.dump());
    index_ = index;
    const Error error = error_of([&] { open_sharded(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_data);
    EXPECT_THAT(error.what(), HasSubstr(index_name));
  }
  write_text(dir_.file(index_name), "{\"weight_map\": {");
  EXPECT_EQ(error_of([&] { Checkpoint::open(dir_.path()); }).code(), ErrorCode::invalid_data);
}

TEST_F(CheckpointTest, LargeIndicesAndConfigurationsTakeTimeInProportion) {
  json config = json::parse(read_text(dir_.file("config.json")));
  int i = 0;
  const auto seconds_to_open = [&](int count) {
    for (; i < count; ++i) {
      index_["weight_map"]["tensor." + std::to_string(i)] = "model-00001-of-00003.safetensors";
      config["field_" + std::to_string(i)] = {{"nested", {i}}};
    }
    write_text(dir_.file("config.json"), config.dump());
    const double before = thread_seconds();
    EXPECT_TRUE(open_sharded().has("tensor." + std::to_string(count - 1)));
    return thread_seconds() - before;
  };
  const double few = seconds_to_open(10'000), many = seconds_to_open(100'000);
  EXPECT_LT(many, most_for_tenfold * few);
}

TEST_F(CheckpointTest, AFolderThatIsNoCheckpoint) {
  Error error = error_of([&] { Checkpoint::open(dir_.path()); });  // config.json and shards, no index
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.what(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  std::filesystem::remove(dir_.file("config.json"));
  error = error_of([&] { Checkpoint::open(dir_.path()); });
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.what(), HasSubstr("has no config.json"));
  for (const std::string& path : {dir_.file("missing"), shard_of(names_[0]), std::string()})
    EXPECT_EQ(error_of([&] { Checkpoint::open(path); }).code(), ErrorCode::io_error) << path;
}

}  // namespace
}  // namespace moecl::test
