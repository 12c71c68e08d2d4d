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

/// A layer under construction. Its tensors are given one by one, in any order, under their names in a checkpoint or by
/// shard and expert (named_layer). An expert is uploaded to the device when its last tensor has come, so the builder
/// holds host memory only for incomplete experts.
///
/// Optional tensors of a scheme (a group index, "weight_shape") must come before the last required one of their expert.
/// All experts are stored in the format of the first complete one.
/// Threads: one at a time. Lifetime: context and group outlive the builder.
class LayerBuilder {
 public:
  /// @param config   ModelConfig::layer or named_layer, also of fuse_shared_experts
  /// @param options  They must name the scheme's activation quantization: built_options does
  /// Errors: as MoeLayer
  LayerBuilder(StreamView stream, const MoeLayerConfig& config, const MoeLayerOptions& options);
  /// Builds one rank of a layer over several ranks. The builder takes the tensors of the experts at this rank's places,
  /// redundant copies included, and keeps this rank's part of them.
  LayerBuilder(const ExpertRank& rank, const ParallelPlan& plan, const MoeLayerConfig& config,
               const MoeLayerOptions& options);
  ~LayerBuilder();
  LayerBuilder(LayerBuilder&&) noexcept;
  LayerBuilder& operator=(LayerBuilder&&) noexcept;

  /// Takes a whole tensor. Its bytes are read when its expert is complete, or by `finish` if it belongs to no expert.
  /// Until then the caller keeps the bytes in place, unless the tensor owns them (HostBytes::copy_of). Stops the host
  /// when an expert becomes complete.
  /// @return  False: the tensor is not needed here: it is another rank's, or no tensor of the layer
  /// Errors: invalid_data      dtypes or shapes are not what config and scheme say. The expert is as it was before, and
  ///                           another tensor of the same name may be given
  ///         invalid_argument  the expert is complete already, or is stored in another format than the first
  bool set(const HostTensor& tensor);
  /// The same for a tensor whose bytes are in device memory. They are read now, after everything that was enqueued on
  /// the stream before. `tensor.data` is ignored.
  bool set(HostTensor tensor, BufferView bytes);
  /// Whether `set` would take a tensor of that name. Errors: invalid_argument  an expert that the layer does not have
  bool wants(const std::string& name) const;
  /// Names of the required tensors that have not come yet; empty: `finish` can be called.
  std::vector<std::string> missing() const;

  /// The layer; the builder is spent. Stops the host.
  /// Errors: invalid_argument  tensors are missing: the message says how many, and some of their names; or the builder
  ///         was made for a rank
  MoeLayer finish();
  /// The same for a rank. Called by all ranks. Errors: also as ParallelLayer; each ends the group
  ParallelLayer finish_rank();

 private:
  std::unique_ptr<LayerAssembly> assembly_;
  ParallelPlan plan_;  ///< of a rank
};

/// Options of a layer with that storage type and the activation quantization of its scheme.
MoeLayerOptions built_options(const MoeLayerConfig& config, DType dtype);

}  // namespace moecl
