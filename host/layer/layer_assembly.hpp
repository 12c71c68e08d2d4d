#pragma once
// Assembles a layer from named tensors: each expert is written to the device once all of its tensors are set.
#include <moecl/named_weights.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/layer/expert_bytes.hpp"
#include "host/layer/layer_parts.hpp"

namespace moecl {

/// Tensors that the caller has set and that are not yet written to the device.
class HandedTensors final : public TensorSource {
 public:
  const std::string& origin() const noexcept override { return origin_; }
  bool has(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }
  HostTensor tensor(std::string_view name) const override;
  void put(const HostTensor& tensor) { tensors_.insert_or_assign(tensor.name, tensor); }
  /// Forgets the tensors for whose names `which` is true.
  template <class Which>
  void drop(Which which) {
    for (auto at = tensors_.begin(); at != tensors_.end();) at = which(at->first) ? tensors_.erase(at) : std::next(at);
  }

 private:
  std::string origin_ = "layer builder";
  std::map<std::string, HostTensor, std::less<>> tensors_;
};

class LayerAssembly {
 public:
  LayerAssembly(StreamView stream, const MoeLayerConfig& config, const MoeLayerOptions& options);
  /// Assembles the rank's experts, or its part of all experts.
  LayerAssembly(const ExpertRank& rank, const PlacementPlan& placement, SharedSharding shared_sharding,
                const MoeLayerConfig& config, const MoeLayerOptions& options);

  bool set(const HostTensor& tensor);
  bool wants(const std::string& name) const;
  std::vector<std::string> missing() const;
  /// Errors: invalid_argument  a tensor is missing
  void expect_whole() const;
  /// The router dtype that the tensors set here would give, for the agreement of the ranks.
  DType router_dtype_alone() const;
  /// Writes all but the routed experts, which are written already, and returns the parts.
  /// @param router_dtype  As the ranks have agreed; unset: by the options
  LayerParts finish(std::optional<DType> router_dtype = {});

  StreamView stream() const noexcept { return stream_; }
  const MoeShape& shape() const noexcept { return config_.shape; }
  const MoeLayerOptions& options() const noexcept { return options_; }
  const std::optional<ExpertRank>& rank() const noexcept { return rank_; }

 private:
  /// The experts at the places here to which such a tensor belongs; an expert at several places occurs several times.
  std::vector<std::int64_t> experts_here(const TensorOwner& owner) const;
  bool is_written(std::int64_t expert) const { return written_[static_cast<std::size_t>(expert)]; }
  /// Writes the expert to its places if none of its tensors is missing.
  bool write_if_whole(std::int64_t expert);
  /// The weights of all but the routed experts, and of one routed expert.
  MoeWeights common() const;

  StreamView stream_;
  MoeLayerConfig config_;
  MoeLayerOptions options_;
  std::optional<ExpertRank> rank_;
  SharedSharding shared_sharding_ = SharedSharding::replicated;
  std::vector<std::int64_t> expert_of_place_;  ///< at each place here
  std::vector<bool> written_;                  ///< for all experts of the layer
  HandedTensors tensors_;
  std::optional<LayerParts> parts_;  ///< set when the first expert was whole
  std::optional<ExpertMatrices> first_;
  std::unique_ptr<WeightUpload> upload_;
};

}  // namespace moecl
