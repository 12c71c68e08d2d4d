#pragma once
#include <moecl/checkpoint.hpp>
#include <moecl/safetensors.hpp>

#include <nlohmann/json.hpp>

#include "host/checkpoint/safetensors_format.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {

/// The fp8 golden with static input scales: gate and up of expert e 0.5 + e / 8, down 1 + e.
inline Checkpoint with_static_scales(const TempDir& dir, float up_of_expert_1) {
  const std::string source = data_path("goldens/mixtral-ct-fp8-e4k2");
  auto config = nlohmann::json::parse(read_text(source + "/config.json"));
  auto& group = config["quantization_config"]["config_groups"]["group_0"];
  group["input_activations"]["dynamic"] = false;
  group["input_activations"]["strategy"] = "tensor";
  write_text(dir.file("config.json"), config.dump());
  const SafetensorsFile file = SafetensorsFile::open(source + "/model.safetensors");
  std::vector<HostTensor> tensors;
  for (const std::string& name : file.names()) tensors.push_back(file.tensor(name));
  std::vector<float> scales;
  scales.reserve(12);
  for (int e = 0; e < 4; ++e)
    for (const char* matrix : {"w1", "w2", "w3"}) {
      const float shared = 0.5F + static_cast<float>(e) / 8;
      scales.push_back(matrix[1] == '2'             ? 1 + static_cast<float>(e)
                       : matrix[1] == '3' && e == 1 ? up_of_expert_1
                                                    : shared);
      tensors.push_back({"model.layers.0.block_sparse_moe.experts." + std::to_string(e) + "." + matrix + ".input_scale",
                         DType::f32,
                         {1},
                         reinterpret_cast<const std::byte*>(&scales.back()),
                         4});
    }
  write_safetensors(dir.file("model.safetensors"), tensors);
  return Checkpoint::open(dir.path());
}

}  // namespace moecl::test
