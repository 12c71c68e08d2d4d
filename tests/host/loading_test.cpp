// Which bytes of its checkpoint a layer reads, and what happens where they cannot be read.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cerrno>
#include <map>

#include "host/layer/layer_parts.hpp"
#include "tests/devices.hpp"
#include "tests/host/file_reads.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

class LoadingTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(LoadingTest);

/// Sizes in bytes of a checkpoint's router and of each of its experts.
struct Stored {
  std::uint64_t router = 0;
  std::map<std::int64_t, std::uint64_t> experts;

  explicit Stored(const std::string& dir) {
    const SafetensorsFile file = SafetensorsFile::open(dir + "/model.safetensors");
    const std::string expert = "mlp.experts.";
    for (const std::string& name : file.names()) {
      const bool described = name.find("weight_shape") != name.npos;  // read by the host alone
      if (name.find("mlp.gate.weight") != name.npos) router += file.tensor(name).size_bytes;
      if (const std::size_t at = name.find(expert); at != name.npos && !described)
        experts[std::stoll(name.substr(at + expert.size()))] += file.tensor(name).size_bytes;
    }
  }
};

// Codes and group scales of int4 are read as they are stored, so the bytes read can be told from the file.
TEST_P(LoadingTest, ARankReadsTheBytesOfItsExpertsAlone) {
  for (const char* golden : {"qwen3-moe-e64k8", "qwen3-moe-ct-int4-e4k2"}) {
    SCOPED_TRACE(golden);
    const std::string dir = data_path("goldens/" + std::string(golden));
    const Checkpoint checkpoint = Checkpoint::open(dir);
    const MoeLayerConfig config = checkpoint.config().layer(0);
    const Stored stored(dir);
    for (const std::vector<std::int64_t>& mine : {std::vector<std::int64_t>{2, 3}, {1}, {3, 0, 3}}) {
      const LayerParts parts(device().stream, config.shape, find_layer_weights(checkpoint, config, mine),
                             static_cast<std::int64_t>(mine.size()), {}, {});
      std::uint64_t expected = stored.router;
      for (const std::int64_t expert : mine) expected += stored.experts.at(expert);
      EXPECT_EQ(parts.report.read_bytes, expected);
    }
  }
}

/// A small golden checkpoint that may be damaged, and its layer's outputs.
class ChangingFilesTest : public OnEveryDevice {
 protected:
  ChangingFilesTest() {
    std::filesystem::copy(data_path("goldens/qwen3-moe-ct-int4-e4k2"), dir_.path());
    expected_ = outputs();
  }

  static MoeLayer load(const Checkpoint& checkpoint, StreamView stream) {
    const MoeLayerConfig config = checkpoint.config().layer(0);
    return MoeLayer(stream, config.shape, find_layer_weights(checkpoint, config));
  }
  std::vector<double> run(const MoeLayer& layer) {
    return run_layer(device(), layer, std::vector<double>(static_cast<std::size_t>(3 * layer.shape().hidden), 0.5)).out;
  }
  std::vector<double> outputs() { return run(load(Checkpoint::open(dir_.path()), device().stream)); }

  TempDir dir_;
  std::string shard_ = dir_.file("model.safetensors");
  std::vector<double> expected_;
};
MOECL_ON_EVERY_DEVICE(ChangingFilesTest);

TEST_P(ChangingFilesTest, ShortAndInterruptedReadsAreContinued) {
  const FileReads reads(dir_.path(), [](std::size_t n) {
    return n % 3 == 0 ? FileReads::Fate{EINTR} : FileReads::Fate{0, 1 + n % 700};
  });
  EXPECT_EQ(outputs(), expected_);
  EXPECT_GT(reads.count(), 100U);
}

TEST_P(ChangingFilesTest, EachReadThatFailsIsAnError) {
  std::size_t all = 0;
  for (std::size_t failing = 0; failing <= all; ++failing) {
    const FileReads reads(dir_.path(), [=](std::size_t n) { return FileReads::Fate{n == failing ? EIO : 0}; });
    try {
      EXPECT_EQ(outputs(), expected_);
      EXPECT_EQ(failing, all);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io_error) << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr("cannot read"));
      EXPECT_THAT(error.what(), testing::HasSubstr("Input/output error"));
      all = failing + 1;
    }
  }
  EXPECT_GT(all, 20U);
}

// The file becomes shorter before a read. A mapped page would be gone.
TEST_P(ChangingFilesTest, AFileThatShrinksIsAnErrorAndOneThatGrowsOrGoesIsNot) {
  const std::string whole = read_text(shard_), other = dir_.file("other");
  for (const std::size_t at : {0U, 1U, 2U, 3U, 10U, 30U}) {
    SCOPED_TRACE(at);
    const auto outputs_if = [&](auto happens) {
      write_text(shard_, whole);
      const FileReads reads(dir_.path(), [&](std::size_t n) {
        if (n == at) happens();
        return FileReads::Fate();
      });
      return outputs();
    };
    const Error error = error_of([&] { outputs_if([&] { std::filesystem::resize_file(shard_, 4); }); });
    EXPECT_EQ(error.code(), at == 0 ? ErrorCode::invalid_data : ErrorCode::io_error);  // 0: config.json is read
    EXPECT_THAT(error.what(), testing::HasSubstr(shard_));
    EXPECT_EQ(outputs_if([&] { write_text(other, whole), std::filesystem::rename(other, shard_); }), expected_);
    if (at == 0) continue;  // the shard is not open yet
    EXPECT_EQ(outputs_if([&] { std::filesystem::resize_file(shard_, 2 * whole.size()); }), expected_);
    EXPECT_EQ(outputs_if([&] { std::filesystem::remove(shard_); }), expected_);
  }
}

TEST_P(ChangingFilesTest, ALayerWhoseNewWeightsCannotBeReadTakesOthers) {
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  const MoeWeights weights = find_layer_weights(checkpoint, checkpoint.config().layer(0));
  MoeLayer layer = load(checkpoint, device().stream);
  {
    const FileReads reads(dir_.path(), [](std::size_t n) { return FileReads::Fate{n == 5 ? EIO : 0}; });
    EXPECT_EQ(error_of([&] { layer.replace_weights(device().stream, weights); }).code(), ErrorCode::io_error);
  }
  EXPECT_EQ(error_of([&] { run(layer); }).code(), ErrorCode::invalid_argument);
  layer.replace_weights(device().stream, weights);
  EXPECT_EQ(run(layer), expected_);
}

}  // namespace
}  // namespace moecl::test
