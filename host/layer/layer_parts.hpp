#pragma once
// What a layer holds on its device: router, experts, shared experts. It has all experts, or those of one rank.
#include <moecl/gating_top_k.hpp>
#include <moecl/layer_options.hpp>
#include <moecl/moe_forward.hpp>
#include <moecl/moe_weights.hpp>

#include "host/layer/experts.hpp"
#include "host/layer/shared_experts.hpp"
#include "host/layer/special_experts.hpp"

namespace moecl {

/// The dtype of the router's weights, as MoeLayerOptions::router_dtype says. If that is unset, a rank without experts
/// uses MoeLayerOptions::dtype.
DType router_dtype(const MoeWeights& weights, const MoeLayerOptions& options);

struct LayerParts {
  const Device* device;
  MoeShape shape;
  MoeLayerOptions options;
  MoeLayerReport report;
  bool has_router = false;
  DenseProduct router;
  Buffer selection_bias_memory, expert_table_memory;
  TensorView selection_bias, expert_table;
  Experts experts;
  SharedExperts shared;
  SpecialExperts special;

  /// Checks, uploads and packs `weights`, which have the `local_experts` routed experts here. Stops the host.
  /// Errors: as MoeLayer
  LayerParts(StreamView stream, const MoeShape& layer_shape, const MoeWeights& weights, std::int64_t local_experts,
             const MoeLayerOptions& layer_options, const LoadProgress& progress);
  /// The same without weights. They come later: `allocate_experts`, then `write_expert` for each, then `write_common`.
  LayerParts(StreamView stream, const MoeShape& layer_shape, std::int64_t local_experts,
             const MoeLayerOptions& layer_options);
  /// Allocates memory for local_experts experts of the format of `all`.
  void allocate_experts(StreamView stream, const std::vector<ExpertMatrices>& all);
  /// The same if all experts have the format of `like`.
  void allocate_experts(StreamView stream, const ExpertMatrices& like);
  /// Writes the `number`-th expert here. Its host matrices may be freed when `upload` has finished.
  void write_expert(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert);
  /// Writes all other weights and fills the report. @param weights  Its experts: one of those here, if there is any
  void write_common(StreamView stream, const MoeWeights& weights);

  std::int64_t local_experts() const noexcept { return local_experts_; }
  /// Errors: invalid_argument  a replacement of weights failed halfway
  void expect_whole() const;
  /// Overwrites the weights with others of the same shape and format, after all commands enqueued before. Stops the
  /// host. Errors: as MoeLayer::replace_weights
  void replace(StreamView stream, const MoeWeights& weights, const LoadProgress& progress);
  /// The same for one expert, the `number`-th here. Errors: as MoeLayer::replace_expert
  void replace_expert(StreamView stream, std::int64_t number, const ExpertMatrices& expert);

  /// The `number`-th expert here, as the device stores it. Stops the host. Errors: invalid_argument  no such expert
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(StreamView stream, std::int64_t number) const;
  PlainExpert plain_expert(StreamView stream, std::int64_t number) const;
  /// Overwrites an expert with the result of packed_expert. Errors: as MoeLayer::replace_packed_expert
  void replace_packed_expert(StreamView stream, std::int64_t number, const std::vector<std::byte>& packed);

  /// The choice of experts. Finished tokens choose -1, which the sort skips. @param logits  Shape: [T, C] f32
  gating_top_k::Args gating(TensorView logits, const MoeForward& args, TensorView ids, TensorView weights) const {
    return {logits, selection_bias, ids, weights, {}, args.finished, -1, {expert_table, args.token_ids}, args.fault};
  }

 private:
  /// @return  as Experts::load
  QuantizationError load(WeightUpload& upload, const MoeWeights& weights, const LoadProgress& progress);
  void write(StreamView stream, const MoeWeights& weights, const LoadProgress& progress);
  /// The same without the routed experts.
  void load_common(WeightUpload& upload, const MoeWeights& weights);
  void allocate_common(StreamView stream, const MoeWeights& weights);
  void expect_number(const char* what, std::int64_t number) const;
  void expect_expert_here(std::int64_t number, const ExpertMatrices& expert) const;
  std::int64_t local_experts_;
  bool whole_ = false;  ///< all weights are written and belong to one set
};

}  // namespace moecl
