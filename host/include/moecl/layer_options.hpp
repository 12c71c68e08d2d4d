#pragma once
#include <moecl/dense_backend.hpp>
#include <moecl/dtype.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/quant_scheme.hpp>
#include <moecl/quantization_error.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// How the experts' rows stand in memory between the products: concatenated, or in room of equal size for each.
enum class ExpertLayout : std::uint8_t { standard, batched };

/// Which of the routed experts that do not all fit a budget give their memory to others: of these the one that ...
enum class ResidencyPolicy : std::uint8_t {
  lru,          ///< was used longest ago
  least_stale,  ///< was used least, where a use counts nine tenths of itself a pass later
  fixed         ///< has the least of the loads that were given
};
/// "lru", "least-stale", "static"
const char* name(ResidencyPolicy policy) noexcept;

/// What is done about an expert that is needed and not in device memory.
enum class MissedExperts : std::uint8_t {
  automatic,  ///< in_place on CPUs, whose memory is the host's; else fetched
  fetched,    ///< it takes the slot of another one
  in_place    ///< products read it where it is, in host memory. Then all experts are there, and the policy only counts
};
/// "auto", "fetched", "in-place"
const char* name(MissedExperts missed) noexcept;

/// Device memory for the routed experts of a layer, of one rank. The others stand in host memory that the device reads.
struct ExpertBudget {
  std::uint64_t bytes = 0;  ///< rounded down to whole experts; 0: none
  double percent = 0;       ///< of the experts' bytes, rounded up to a whole expert; 0: none. Range: [0, 100]
  ResidencyPolicy policy = ResidencyPolicy::least_stale;
  std::vector<float> loads = {};  ///< of ResidencyPolicy::fixed, not negative. Shape: [experts of this rank]
  MissedExperts missed = MissedExperts::automatic;
};

/// What the device did since the layer was loaded.
struct ResidencyCounts {
  std::int64_t hits = 0;             ///< experts with rows that were in device memory, over passes
  std::int64_t misses = 0;           ///< that were not
  std::uint64_t fetched_bytes = 0;   ///< theirs, which came from host memory: copied, or read where they are; and those
                                     ///< of experts that were prefetched
  std::int64_t prefetched = 0;       ///< experts that MoeLayer::prefetch brought
  std::int64_t prefetched_hits = 0;  ///< hits of these, each once
};

/// How a layer is stored and run; the defaults suit most.
struct MoeLayerOptions {
  /// Storage of activations and weights on the device: f32, f16 or bf16. Sums and rows between kernels are f32.
  DType dtype = DType::f32;
  /// Storage of the router's weights, by which its product goes: f32, f16 or bf16. Unset: f32 where they are given so
  /// beside experts that are not, so that rounding chooses no other experts; else dtype.
  std::optional<DType> router_dtype;
  ExpertLayout layout = ExpertLayout::standard;
  /// Batched layout: rows each expert has room for; 0: as many as a chunk has tokens, so none can overflow.
  std::int64_t rows_per_expert = 0;
  /// Most tokens that run at once; longer inputs run in chunks, one after the other. 0: the largest power of two in
  /// [64, 65536] whose workspace fits 256 MiB (on a GPU a 16th of its memory if that is more) and the device's largest
  /// allocation; over ranks no chunks. Errors: invalid_argument  a chunk's workspace exceeds the largest allocation
  std::int64_t chunk_tokens = 0;
  /// Who computes dense products (router, shared experts) and the batched layout's; unset: what was measured faster on
  /// such a device. CLBlast needs dtype f32.
  std::optional<dense_backend::Backend> dense_backend;
  /// Layers of few tokens may take one launch (<moecl/fused_moe.hpp>). Its work-groups wait for each other: where
  /// somebody else keeps the device busy for seconds, its result is NaN and a fault. False: always several launches.
  bool one_launch = true;
  /// Where one rank has the layer, its shared experts run on a second queue (StreamView::side), beside the routed ones.
  /// Such a pass takes several launches. Its stream waits for the second queue before the pass ends. Unset: on NVIDIA
  /// GPUs, up to 256 tokens, or 4096 where rows become codes.
  std::optional<bool> shared_beside;
  /// How the rows of every product of the routed experts, and of the shared ones, are quantized just before it. The
  /// router and the shared experts' gate see them as they are.
  OperandQuant activations, shared_activations;
  /// How plain weights of the routed experts are quantized, on the device while they are loaded; plain: not at all.
  OperandQuant quantize;
  /// How the panels of the routed experts' weights stand; unset: as is fastest on such a device. Others need weights
  /// that can stand so, and kernels that read them.
  std::optional<PanelLayout> panel_layout;
  /// For all of the routed experts by default. With one, calls of a layer are made one at a time.
  ExpertBudget budget;
  /// Logged as warnings when a layer is made: what its checkpoint asks for and is not done.
  std::vector<std::string> warnings;
};

/// What was chosen for a layer, for logs and summaries.
struct MoeLayerReport {
  std::string dense_backend, dense_reason;      ///< router and shared experts
  std::string batched_backend, batched_reason;  ///< expert products; empty in the standard layout
  /// How their weights are stored: "bf16", "i4, f16 scales of 128 columns, zero points"; empty where there are none.
  std::string expert_format, shared_format;
  std::string shared_queue;   ///< on which the shared experts run, and why; empty where there are none
  std::string expert_layout;  ///< how their panels stand: "n_major", "k_words"; "row_major" for CLBlast
  std::string expert_layout_reason;
  DType router_dtype = DType::f32;  ///< of the router's weights
  std::string activations;          ///< "plain", or what they are quantized to and how products take it
  std::int64_t chunk_tokens = 0;
  std::uint64_t weight_bytes = 0;     ///< device memory held
  std::int64_t resident_experts = 0;  ///< routed experts here that fit device memory together
  std::uint64_t resident_bytes = 0;   ///< which they take there
  std::string missed_experts;         ///< with a budget: "fetched", or "in-place", and why
  QuantizationError quantization;     ///< what MoeLayerOptions::quantize made of the weights
  std::uint64_t read_bytes = 0;       ///< of the host's matrices, to load them
  std::int64_t weight_segments = 0;   ///< expert groups that keep below the device's largest allocation
};

/// Progress of loading: experts done of all. Called on the loading thread.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// What the ranks of a tp group, who have the same tokens, divide of the shared experts.
enum class SharedSharding : std::uint8_t {
  replicated,   ///< nothing: each computes all its tokens
  tokens,       ///< each computes a share of the tokens, and gets the others' (enable_shared_expert_dp)
  intermediate  ///< each has a part of the intermediate size; partial sums are reduced
};
/// "replicated", "tokens", "intermediate"
const char* name(SharedSharding sharding) noexcept;

}  // namespace moecl
