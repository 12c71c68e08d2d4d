// What loading a layer reads of its checkpoint.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/safetensors.hpp>

#include <gtest/gtest.h>

#include <map>

#include "host/layer/layer_parts.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

class LoadingTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(LoadingTest);

/// Bytes of a checkpoint's tensors: of the router, and of each expert.
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

// Codes and group scales of int4 are read as they are, so that the bytes are those of the file.
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

}  // namespace
}  // namespace moecl::test
