#include <moecl/layer_builder.hpp>

#include "host/layer/expert_bytes.hpp"
#include "host/layer/layer_assembly.hpp"
#include "runtime/check.hpp"

namespace moecl {

LayerBuilder::LayerBuilder(StreamView stream, const MoeLayerConfig& config, const MoeLayerOptions& options) {
  require(stream.queue != nullptr, "layer builder: the stream has no queue: made by default, or moved from");
  assembly_ = std::make_unique<LayerAssembly>(stream, config, options);
}
LayerBuilder::LayerBuilder(const ExpertRank& rank, const ParallelPlan& plan, const MoeLayerConfig& config,
                           const MoeLayerOptions& options)
    : assembly_(std::make_unique<LayerAssembly>(rank, plan.placement, plan.shared_sharding, config, options)),
      plan_(plan) {}
LayerBuilder::~LayerBuilder() = default;
LayerBuilder::LayerBuilder(LayerBuilder&&) noexcept = default;
LayerBuilder& LayerBuilder::operator=(LayerBuilder&&) noexcept = default;

bool LayerBuilder::set(const HostTensor& tensor) {
  require(assembly_ != nullptr, "layer builder: finished already");
  return assembly_->set(tensor);
}

bool LayerBuilder::wants(const std::string& name) const {
  require(assembly_ != nullptr, "layer builder: finished already");
  return assembly_->wants(name);
}

bool LayerBuilder::set(HostTensor tensor, BufferView bytes) {
  if (!wants(tensor.name)) return false;
  require(bytes.size_bytes == tensor.size_bytes, "layer builder: {}: expected {} bytes, got {}", tensor.describe(),
          tensor.size_bytes, bytes.size_bytes);
  const std::vector<std::byte> read = read_bytes(assembly_->stream(), {bytes});
  tensor.data = HostBytes::copy_of(read.data(), read.size());
  return set(tensor);
}

std::vector<std::string> LayerBuilder::missing() const {
  require(assembly_ != nullptr, "layer builder: finished already");
  return assembly_->missing();
}

MoeLayer LayerBuilder::finish() {
  require(assembly_ != nullptr, "layer builder: finished already");
  require(!assembly_->rank(), "layer builder: of a rank, whose layer finish_rank gives");
  assembly_->expect_whole();
  const std::unique_ptr<LayerAssembly> spent = std::move(assembly_);
  return MoeLayer(*spent);
}

ParallelLayer LayerBuilder::finish_rank() {
  require(assembly_ != nullptr, "layer builder: finished already");
  require(assembly_->rank().has_value(), "layer builder: of no rank; finish gives its layer");
  const std::unique_ptr<LayerAssembly> spent = std::move(assembly_);
  return {plan_, *spent};
}

MoeLayerOptions built_options(const MoeLayerConfig& config, DType dtype) {
  MoeLayerOptions options;
  options.dtype = dtype;
  options.warnings = config.quantization.warnings;
  options.activations = config.expert_scheme().activations;
  options.shared_activations = config.shared_scheme().activations;
  return options;
}

}  // namespace moecl
