#pragma once
// A layer's weights on their way from named tensors to its device, expert by expert.
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

/// Tensors that were handed over and not yet taken.
class HandedTensors final : public TensorSource {
 public:
  const std::string& origin() const noexcept override { return origin_; }
  bool has(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }
  HostTensor tensor(std::string_view name) const override;
  void put(const HostTensor& tensor) { tensors_.insert_or_assign(tensor.name, tensor); }
  /// Forgets the tensors that `which` is true of.
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
  /// Of the rank's experts, or its part of all of them.
  LayerAssembly(const ExpertRank& rank, const PlacementPlan& placement, SharedSharding shared_sharding,
                const MoeLayerConfig& config, const MoeLayerOptions& options);

  bool set(const HostTensor& tensor);
  bool wants(const std::string& name) const;
  std::vector<std::string> missing() const;
  /// Errors: invalid_argument  something is missing
  void expect_whole() const;
  /// Of what was set, as ParallelLayer asks it.
  DType router_dtype_alone() const;
  /// The parts, of which all but the routed experts are written now. @param router_dtype  As agreed; unset: its own
  LayerParts finish(std::optional<DType> router_dtype = {});

  StreamView stream() const noexcept { return stream_; }
  const MoeShape& shape() const noexcept { return config_.shape; }
  const MoeLayerOptions& options() const noexcept { return options_; }
  const std::optional<ExpertRank>& rank() const noexcept { return rank_; }

 private:
  /// The experts of the places here that have such a tensor; an expert of several places several times.
  std::vector<std::int64_t> experts_here(const TensorOwner& owner) const;
  bool is_written(std::int64_t expert) const { return written_[static_cast<std::size_t>(expert)]; }
  /// Writes the expert to its places if nothing of it is missing.
  bool write_if_whole(std::int64_t expert);
  /// All but the routed experts, and one of those.
  MoeWeights common() const;

  StreamView stream_;
  MoeLayerConfig config_;
  MoeLayerOptions options_;
  std::optional<ExpertRank> rank_;
  SharedSharding shared_sharding_ = SharedSharding::replicated;
  std::vector<std::int64_t> expert_of_place_;  ///< of the places here
  std::vector<bool> written_;                  ///< of all experts
  HandedTensors tensors_;
  std::optional<LayerParts> parts_;  ///< since one expert was whole
  std::optional<ExpertMatrices> first_;
  std::unique_ptr<WeightUpload> upload_;
};

}  // namespace moecl
