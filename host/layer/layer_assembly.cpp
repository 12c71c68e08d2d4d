#include "host/layer/layer_assembly.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "host/layer/rank_weights.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// The expert of each place of the rank. Free places at the end are left out, since they want no tensors.
std::vector<std::int64_t> experts_of(const ExpertRank& rank, const PlacementPlan& placement) {
  std::vector<std::int64_t> experts(static_cast<std::size_t>(places_of_experts(rank, placement)));
  if (placement.logical_of.empty())
    std::iota(experts.begin(), experts.end(), rank.first_expert);
  else
    std::copy_n(placement.logical_of.begin() + rank.first_expert, experts.size(), experts.begin());
  return experts;
}

std::vector<std::int64_t> all_of(const MoeShape& shape) {
  require(shape.experts >= 1, "layer: experts {} must be positive", shape.experts);
  std::vector<std::int64_t> experts(static_cast<std::size_t>(shape.experts));
  std::iota(experts.begin(), experts.end(), 0);
  return experts;
}

}  // namespace

HostTensor HandedTensors::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(ErrorCode::invalid_data, "{}: no tensor \"{}\"", origin_, name);
  return found->second;
}

LayerAssembly::LayerAssembly(StreamView stream, const MoeLayerConfig& config, const MoeLayerOptions& options)
    : stream_(stream),
      config_(config),
      options_(options),
      expert_of_place_(all_of(config.shape)),
      written_(expert_of_place_.size()),
      upload_(std::make_unique<WeightUpload>(stream)) {}

LayerAssembly::LayerAssembly(const ExpertRank& rank, const PlacementPlan& placement, SharedSharding shared_sharding,
                             const MoeLayerConfig& config, const MoeLayerOptions& options)
    : LayerAssembly(rank.ep.rank_stream(), config, options) {
  rank_ = rank;
  shared_sharding_ = shared_sharding;
  const std::int32_t places = placement.logical_of.empty() ? config.shape.experts : placement.physical();
  require(rank.experts == places, "layer builder: the rank shards {} experts, the {} has {}", rank.experts,
          placement.logical_of.empty() ? "shape" : "placement", places);
  expert_of_place_ = experts_of(rank, placement);
  if (options.layout == ExpertLayout::batched && std::ssize(expert_of_place_) < rank.local_experts)
    fail(ErrorCode::unsupported, "layer builder: the batched layout has room for {} places, of which {} have weights",
         rank.local_experts, expert_of_place_.size());
}

std::vector<std::int64_t> LayerAssembly::experts_here(const TensorOwner& owner) const {
  const std::int64_t routed = config_.shape.routed_experts();
  std::vector<std::int64_t> here;
  for (const std::int64_t expert : expert_of_place_)
    if (owner.kind == TensorOwner::Kind::expert ? expert == owner.expert
                                                : (expert < routed) == (owner.kind == TensorOwner::Kind::every_expert))
      here.push_back(expert);
  return here;
}

bool LayerAssembly::wants(const std::string& name) const {
  using Kind = TensorOwner::Kind;
  const TensorOwner owner = owner_of(config_, name);
  if (owner.kind == Kind::nobody || owner.kind == Kind::common) return owner.kind == Kind::common;
  require(owner.kind != Kind::expert || owner.expert < config_.shape.routed_experts(),
          "layer builder: {}: expert {} of {}", name, owner.expert, config_.shape.routed_experts());
  return !experts_here(owner).empty();
}

bool LayerAssembly::set(const HostTensor& tensor) {
  if (!wants(tensor.name)) return false;
  const TensorOwner owner = owner_of(config_, tensor.name);
  if (owner.kind == TensorOwner::Kind::common) {
    tensors_.put(tensor);
    return true;
  }
  const std::vector<std::int64_t> experts = experts_here(owner);
  if (std::all_of(experts.begin(), experts.end(), [&](std::int64_t expert) { return is_written(expert); })) {
    // A tensor that only confirms the shape may come late.
    require(tensor.name.ends_with(".weight_shape"),
            "layer builder: {}: {} whole before; tensors that need not be there come before the others", tensor.name,
            owner.kind == TensorOwner::Kind::expert         ? fmt::format("expert {} was", owner.expert)
            : owner.kind == TensorOwner::Kind::every_expert ? "all experts were"
                                                            : "the shared experts were");
    return true;
  }
  tensors_.put(tensor);
  for (const std::int64_t expert : experts)
    if (!is_written(expert) && !write_if_whole(expert)) return true;
  tensors_.drop([&](const std::string& name) { return owner_of(config_, name) == owner; });
  return true;
}

bool LayerAssembly::write_if_whole(std::int64_t expert) {
  if (!missing_expert_tensors(tensors_, config_, expert).empty()) return false;
  ExpertMatrices matrices = find_expert(tensors_, config_, expert);
  MoeShape shape = config_.shape;
  if (rank_) {
    shape.intermediate = intermediate_of_rank(*rank_, shape, matrices);
    matrices = expert_of_rank(*rank_, config_.shape, matrices);
  }
  if (!parts_) {
    LayerParts parts(stream_, shape, static_cast<std::int64_t>(expert_of_place_.size()), options_);
    parts.allocate_experts(stream_, matrices);
    parts_.emplace(std::move(parts));
    first_ = matrices;
  }
  for (std::size_t place = 0; place < expert_of_place_.size(); ++place)
    if (expert_of_place_[place] == expert) parts_->write_expert(*upload_, static_cast<std::int64_t>(place), matrices);
  written_[static_cast<std::size_t>(expert)] = true;
  return true;
}

std::vector<std::string> LayerAssembly::missing() const {
  std::vector<std::string> missing = missing_common_tensors(tensors_, config_);
  std::vector<bool> said = written_;
  for (const std::int64_t expert : expert_of_place_) {
    if (said[static_cast<std::size_t>(expert)]) continue;
    said[static_cast<std::size_t>(expert)] = true;
    for (std::string& name : missing_expert_tensors(tensors_, config_, expert))
      if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(std::move(name));
  }
  return missing;
}

void LayerAssembly::expect_whole() const {
  constexpr std::size_t most = 4;  // names that a message has room for
  std::vector<std::string> names = missing();
  const std::size_t count = names.size();
  names.resize(std::min(count, most));
  require(count == 0, "layer builder: {} tensors are missing: {}{}", count, fmt::join(names, ", "),
          count > most ? ", ..." : "");
}

MoeWeights LayerAssembly::common() const {
  MoeWeights weights = find_common_weights(tensors_, config_);
  if (first_) weights.experts = {*first_};
  return weights;
}

DType LayerAssembly::router_dtype_alone() const { return router_dtype(common(), options_); }

LayerParts LayerAssembly::finish(std::optional<DType> router_dtype) {
  expect_whole();
  MoeWeights weights = common();
  if (!parts_) {  // a rank without experts
    parts_.emplace(LayerParts(stream_, config_.shape, 0, options_));
    parts_->allocate_experts(stream_, std::vector<ExpertMatrices>());
  }
  if (router_dtype) parts_->options.router_dtype = router_dtype;
  if (rank_) {
    MoeWeights whole;  // of the shared experts only: the routed one is the rank's part already
    whole.shared = weights.shared;
    parts_->shape.shared_intermediate =
        shape_of_rank(*rank_, shared_sharding_, config_.shape, whole).shared_intermediate;
    weights.shared = weights_of_rank(*rank_, shared_sharding_, config_.shape, whole).shared;
  }
  parts_->write_common(stream_, weights);
  parts_->report.read_bytes += upload_->read_bytes();
  return *std::move(parts_);
}

}  // namespace moecl
