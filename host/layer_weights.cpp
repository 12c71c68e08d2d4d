#include <moecl/layer_weights.hpp>

#include "host/name_template.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Finds the tensors of one layer and checks each against the shape that the config gives it.
class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const MoeLayerConfig& config) : checkpoint_(checkpoint), config_(config) {
    if (!config.quantization_method.empty())
      fail(ErrorCode::unsupported, "{}: weights quantized by \"{}\"; only unquantized checkpoints are read so far",
           checkpoint.dir(), config.quantization_method);
  }

  HostMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return find(name, {rows, columns}, rows, columns);
  }
  HostMatrix vector(const std::string& name, std::int64_t size) const { return find(name, {size}, 1, size); }

  ExpertMatrices network(const ExpertTensorNames& names, std::int64_t width) const {
    const std::int64_t hidden = config_.shape.hidden;
    return {matrix(names.gate, width, hidden), matrix(names.up, width, hidden), matrix(names.down, hidden, width)};
  }

 private:
  HostMatrix find(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t rows,
                  std::int64_t columns) const {
    const HostTensor tensor = checkpoint_.tensor(name);
    if (tensor.shape != shape)
      fail(ErrorCode::invalid_data, "{}: {}, but config.json makes it [{}]", checkpoint_.dir(), tensor.describe(),
           fmt::join(shape, ", "));
    if (!is_activation_dtype(tensor.dtype))
      fail(ErrorCode::invalid_data, "{}: {} is not f32, f16 or bf16, and config.json has no quantization_config",
           checkpoint_.dir(), tensor.describe());
    return {tensor.data, tensor.dtype, rows, columns};
  }

  const Checkpoint& checkpoint_;
  const MoeLayerConfig& config_;
};

/// All but the routed experts.
MoeWeights find_common(const Finder& find, const MoeLayerConfig& config) {
  const MoeShape& shape = config.shape;
  const MoeTensorNames& names = config.names;
  MoeWeights weights;
  weights.router = find.matrix(names.router, shape.experts, shape.hidden);
  if (shape.selection_bias) weights.selection_bias = find.vector(names.selection_bias, shape.experts);
  if (shape.shared_intermediate > 0) weights.shared = find.network(names.shared, shape.shared_intermediate);
  if (shape.shared_gate) weights.shared_gate = find.matrix(names.shared_gate, 1, shape.hidden);
  return weights;
}

ExpertMatrices find_expert(const Finder& find, const MoeLayerConfig& config, std::int64_t id) {
  const ExpertTensorNames& names = config.names.expert;
  const std::string number = std::to_string(id);
  return find.network({substitute(names.gate, "expert", number), substitute(names.up, "expert", number),
                       substitute(names.down, "expert", number)},
                      config.shape.intermediate);
}

}  // namespace

MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config) {
  const Finder find(checkpoint, config);
  MoeWeights weights = find_common(find, config);
  for (std::int64_t id = 0; id < config.shape.experts; ++id) weights.experts.push_back(find_expert(find, config, id));
  return weights;
}

MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config,
                              const std::vector<std::int64_t>& expert_ids) {
  const Finder find(checkpoint, config);
  MoeWeights weights = find_common(find, config);
  for (const std::int64_t id : expert_ids) {
    require(id >= 0 && id < config.shape.experts, "expert {} of {}", id, config.shape.experts);
    weights.experts.push_back(find_expert(find, config, id));
  }
  return weights;
}

}  // namespace moecl
