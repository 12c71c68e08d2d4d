#pragma once
// Golden layers for tests of the C interface.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moecl.h>
#include <moecl/safetensors.hpp>

#include <string>
#include <vector>

#include "tests/cases/device_memory.hpp"
#include "tests/host/c_api.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {

inline const char* const golden_name = "deepseek-v3-e32k8-g8";  // uses every router option but weight_on_input

inline std::string golden_dir(const std::string& name) { return data_path("goldens/" + name); }

inline std::vector<double> golden_values(const std::string& name, const char* tensor_name) {
  const SafetensorsFile file = SafetensorsFile::open(golden_dir(name) + "/golden.safetensors");
  const HostTensor tensor = file.tensor(tensor_name).in_memory();
  const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data.memory());
  return decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
}

/// The weights of a golden layer, one array for each kind.
struct RawWeights {
  std::vector<unsigned char> gate, up, down;
  Checkpoint checkpoint = Checkpoint::open(golden_dir(golden_name));
  MoeLayerConfig config = checkpoint.config().layer(0);
  MoeWeights found = find_layer_weights(checkpoint, config);
  moecl_layer_desc desc = sized<moecl_layer_desc>();

  RawWeights() {
    const auto append = [](std::vector<unsigned char>& to, const HostMatrix& matrix) {
      to.resize(to.size() + matrix.span_bytes());
      matrix.data.read(to.data() + to.size() - matrix.span_bytes(), matrix.span_bytes());
    };
    for (const ExpertMatrices& expert : found.experts) {
      append(gate, expert.gate.plain);
      append(up, expert.up.plain);
      append(down, expert.down.plain);
    }
    for (HostMatrix* matrix : {&found.router, &found.selection_bias, &found.shared.gate.plain, &found.shared.up.plain,
                               &found.shared.down.plain})
      *matrix = matrix->in_memory();
    // Written out from config.json of the case.
    desc.hidden = 96;
    desc.intermediate = 20;
    desc.shared_intermediate = static_cast<std::int64_t>(found.shared.gate.rows());
    desc.experts = 32;
    desc.top_k = 8;
    desc.score = MOECL_SCORE_SIGMOID;
    desc.groups = 8;
    desc.kept_groups = 4;
    desc.group_score = MOECL_GROUP_SUM_OF_TOP_2;
    desc.renormalise = 1;
    desc.renormalise_epsilon = 1e-20F;
    desc.scaling_factor = 2.5F;
    desc.router = {found.router.data.memory(), MOECL_F32};
    desc.selection_bias = {found.selection_bias.data.memory(), MOECL_F32};
    desc.gate = {gate.data(), MOECL_F32};
    desc.up = {up.data(), MOECL_F32};
    desc.down = {down.data(), MOECL_F32};
    desc.shared_gate = {found.shared.gate.plain.data.memory(), MOECL_F32};
    desc.shared_up = {found.shared.up.plain.data.memory(), MOECL_F32};
    desc.shared_down = {found.shared.down.plain.data.memory(), MOECL_F32};
  }
};

}  // namespace moecl::test
