#pragma once
// What a layer holds on its device, whether it has all experts or those of one rank: router, experts, shared experts.
#include <moecl/gating_top_k.hpp>
#include <moecl/layer_options.hpp>
#include <moecl/moe_forward.hpp>
#include <moecl/moe_weights.hpp>

#include "host/layer/experts.hpp"
#include "host/layer/shared_experts.hpp"
#include "host/layer/special_experts.hpp"

namespace moecl {

/// In which the router's weights are stored, as MoeLayerOptions says; of a rank without experts dtype where it is
/// unset.
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

  /// Checks, uploads and repacks `weights`, of which `local_experts` are the routed experts here. Stops the host.
  /// Errors: as MoeLayer
  LayerParts(StreamView stream, const MoeShape& layer_shape, const MoeWeights& weights, std::int64_t local_experts,
             const MoeLayerOptions& layer_options, const LoadProgress& progress);
  /// The same without weights, which come one by one: memory for the experts, then experts, then all else.
  LayerParts(StreamView stream, const MoeShape& layer_shape, std::int64_t local_experts,
             const MoeLayerOptions& layer_options);
  /// Memory for local_experts experts that are stored as these are.
  void allocate_experts(StreamView stream, const std::vector<ExpertMatrices>& all);
  /// The same where all are stored as this one.
  void allocate_experts(StreamView stream, const ExpertMatrices& like);
  /// Writes an expert, the `number`-th here; the host's matrix may go when `upload` has finished.
  void write_expert(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert);
  /// All else, and what the layer became. @param weights  Its experts are one of those here, if there is one
  void write_common(StreamView stream, const MoeWeights& weights);

  std::int64_t local_experts() const noexcept { return local_experts_; }
  /// Errors: invalid_argument  a replacement that began has not come to its end
  void expect_whole() const;
  /// Writes other weights of the same shape and form where the old ones are, after what was enqueued before. Stops the
  /// host. Errors: as MoeLayer::replace_weights
  void replace(StreamView stream, const MoeWeights& weights, const LoadProgress& progress);
  /// The same of one expert, the `number`-th here. Errors: as MoeLayer::replace_expert
  void replace_expert(StreamView stream, std::int64_t number, const ExpertMatrices& expert);

  /// One expert, the `number`-th here, as the device has it. Stops the host. Errors: invalid_argument  no such expert
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(StreamView stream, std::int64_t number) const;
  PlainExpert plain_expert(StreamView stream, std::int64_t number) const;
  /// Takes what packed_expert gave. Errors: as MoeLayer::replace_packed_expert
  void replace_packed_expert(StreamView stream, std::int64_t number, const std::vector<std::byte>& packed);

  /// How tokens choose; those that are finished choose -1, which a sort passes over. @param logits  Shape: [T, C] f32
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
  bool whole_ = false;  ///< all weights are of one set
};

}  // namespace moecl
