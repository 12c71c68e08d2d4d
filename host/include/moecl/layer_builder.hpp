#pragma once
#include <moecl/buffer.hpp>
#include <moecl/host_tensor.hpp>
#include <moecl/model_config.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/parallel_layer.hpp>

#include <memory>
#include <string>
#include <vector>

namespace moecl {

class LayerAssembly;

/// A layer under construction: its tensors come one by one, in any order, by the names that they have in a checkpoint,
/// or by shard and expert (named_layer). An expert goes to the device when its last tensor has come, so no more of the
/// host's memory is held than of experts that are not whole.
///
/// Tensors that a scheme may lack (a group index, "weight_shape") come before the last one that it needs. All experts
/// are stored in the format of the first that was whole.
/// Threads: one at a time. Lifetime: context and group outlive the builder.
class LayerBuilder {
 public:
  /// @param config   ModelConfig::layer or named_layer, also of fuse_shared_experts
  /// @param options  Also the activations that the scheme means: built_options has them
  /// Errors: as MoeLayer
  LayerBuilder(StreamView stream, const MoeLayerConfig& config, const MoeLayerOptions& options);
  /// One rank of a layer over many; it keeps the tensors of its own places, copies of experts included, and takes its
  /// part of them.
  LayerBuilder(const ExpertRank& rank, const ParallelPlan& plan, const MoeLayerConfig& config,
               const MoeLayerOptions& options);
  ~LayerBuilder();
  LayerBuilder(LayerBuilder&&) noexcept;
  LayerBuilder& operator=(LayerBuilder&&) noexcept;

  /// Takes a whole tensor. Its bytes are read when the expert is whole, those that belong to no expert by `finish`:
  /// they stay where they are until then, unless they are their own (HostBytes::copy_of). Stops the host where an
  /// expert becomes whole.
  /// @return  False: nobody here needs it, as it is another rank's or no tensor of the layer
  /// Errors: invalid_data      dtypes or shapes are not what config and scheme say; the expert is as it was before, and
  ///                           another tensor of the same name may come
  ///         invalid_argument  the expert is whole already, or is stored otherwise than the first
  bool set(const HostTensor& tensor);
  /// The same of a tensor whose bytes stand in device memory, which is read now, after what was enqueued on the stream
  /// before; `tensor.data` counts for nothing.
  bool set(HostTensor tensor, BufferView bytes);
  /// Whether `set` would take a tensor of that name. Errors: invalid_argument  an expert that the layer has not
  bool wants(const std::string& name) const;
  /// Names of the tensors without which the layer is not whole; empty: `finish` can be called.
  std::vector<std::string> missing() const;

  /// The layer; the builder is spent. Stops the host.
  /// Errors: invalid_argument  tensors are missing: the message says how many, and some of their names; or the builder
  ///         is one of a rank
  MoeLayer finish();
  /// The same of a rank. By all ranks. Errors: also as ParallelLayer; each ends the group
  ParallelLayer finish_rank();

 private:
  std::unique_ptr<LayerAssembly> assembly_;
  ParallelPlan plan_;  ///< of a rank
};

/// How a layer of that type is best stored: with the activations that its scheme means.
MoeLayerOptions built_options(const MoeLayerConfig& config, DType dtype);

}  // namespace moecl
