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

/// How the experts' rows are stored between the products: concatenated, or with room of equal size for each expert.
enum class ExpertLayout : std::uint8_t { standard, batched };

/// Which routed expert gives its slot of device memory to another one, if a budget does not hold all: the one that ...
enum class ResidencyPolicy : std::uint8_t {
  lru,          ///< was least recently used
  least_stale,  ///< has the least sum of uses; each pass multiplies the earlier uses by 0.9
  fixed         ///< has the least of the given loads
};
/// "lru", "least-stale", "static"
const char* name(ResidencyPolicy policy) noexcept;

/// What happens when a pass needs an expert that is not in device memory.
enum class MissedExperts : std::uint8_t {
  automatic,  ///< in_place on CPUs, whose memory is the host's; fetched elsewhere
  fetched,    ///< the expert is copied to the slot of another one
  in_place    ///< products read it in host memory, where all experts then stay; the policy only counts hits and misses
};
/// "auto", "fetched", "in-place"
const char* name(MissedExperts missed) noexcept;

/// Device memory for the routed experts of a layer, on one rank. The others stay in host memory that the device reads.
struct ExpertBudget {
  std::uint64_t bytes = 0;  ///< rounded down to whole experts; 0: not set
  double percent = 0;       ///< of the experts' bytes, rounded up to a whole expert; 0: not set. Range: [0, 100]
  ResidencyPolicy policy = ResidencyPolicy::least_stale;
  std::vector<float> loads = {};  ///< for ResidencyPolicy::fixed, not negative. Shape: [experts of this rank]
  MissedExperts missed = MissedExperts::automatic;
};

/// Counts since the layer was loaded.
struct ResidencyCounts {
  std::int64_t hits = 0;             ///< experts with rows that were in device memory, summed over passes
  std::int64_t misses = 0;           ///< experts with rows that were not
  std::uint64_t fetched_bytes = 0;   ///< bytes of missed experts, copied from host memory or read there, and bytes of
                                     ///< prefetched experts
  std::int64_t prefetched = 0;       ///< experts that MoeLayer::prefetch brought
  std::int64_t prefetched_hits = 0;  ///< hits of prefetched experts, at most one per prefetch
};

/// How a layer is stored and run; the defaults suit most.
struct MoeLayerOptions {
  /// Storage of activations and weights on the device: f32, f16 or bf16. Sums and rows between kernels are f32.
  DType dtype = DType::f32;
  /// Storage of the router's weights, which also selects its product: f32, f16 or bf16. Unset: f32 if the router is
  /// given in f32 and the experts are not, so that rounding does not change the choice of experts; else dtype.
  std::optional<DType> router_dtype;
  ExpertLayout layout = ExpertLayout::standard;
  /// Batched layout: rows that each expert has room for; 0: the tokens of a chunk, so no expert can overflow.
  std::int64_t rows_per_expert = 0;
  /// Most tokens that run at once; longer inputs run in chunks, one after the other. 0: the largest power of two in
  /// [64, 65536] whose workspace fits 256 MiB (on a GPU a 16th of its memory if that is more) and the device's largest
  /// allocation; over ranks no chunks. Errors: invalid_argument  a chunk's workspace exceeds the largest allocation
  std::int64_t chunk_tokens = 0;
  /// The backend of the dense products (router, shared experts) and of the batched layout's expert products; unset: the
  /// one that was measured faster on such a device. CLBlast needs dtype f32.
  std::optional<dense_backend::Backend> dense_backend;
  /// Passes of few tokens may take one launch (<moecl/fused_moe.hpp>), and more tokens may be routed in one
  /// (<moecl/route_tokens.hpp>). Work-groups of these launches wait for each other. If other work keeps the device busy
  /// for seconds, the result is NaN and a fault is set. False: always several launches; only routing of up to 64 tokens
  /// from the router on may still wait.
  bool one_launch = true;
  /// If one rank has the whole layer, its shared experts run on a second queue (StreamView::side), beside the routed
  /// ones. Such a pass takes several launches. Its stream waits for the second queue before the pass ends. Unset: only
  /// on NVIDIA GPUs, up to 256 tokens, or 4096 if `activations` quantizes the experts' rows.
  std::optional<bool> shared_beside;
  /// How the input rows of every product are quantized just before it: of the routed experts, and of the shared ones.
  /// The router and the shared experts' gate take the rows unquantized.
  OperandQuant activations, shared_activations;
  /// How plain weights of the routed experts are quantized, on the device during loading; plain: not at all.
  OperandQuant quantize;
  /// Layout of the panels of the routed experts' weights; unset: the fastest on such a device. Another layout needs
  /// weights that can be stored in it and kernels that read it.
  std::optional<PanelLayout> panel_layout;
  /// By default device memory holds all routed experts. With a budget, the calls of a layer are made one at a time.
  ExpertBudget budget;
  /// Logged as warnings when a layer is made: what its checkpoint asks for and moecl does not do.
  std::vector<std::string> warnings;
};

/// What was chosen for a layer, for logs and summaries.
struct MoeLayerReport {
  std::string dense_backend, dense_reason;      ///< router and shared experts
  std::string batched_backend, batched_reason;  ///< expert products; empty in the standard layout
  /// Storage of the experts' weights: "bf16", "i4, f16 scales of 128 columns, zero points"; empty if there are none.
  std::string expert_format, shared_format;
  std::string shared_queue;   ///< the queue of the shared experts, and why; empty if there are none
  std::string expert_layout;  ///< layout of the experts' panels: "n_major", "k_words"; "row_major" for CLBlast
  std::string expert_layout_reason;
  DType router_dtype = DType::f32;  ///< of the router's weights
  std::string activations;          ///< "plain", or the type that they are quantized to and how products take it
  std::int64_t chunk_tokens = 0;
  std::uint64_t weight_bytes = 0;     ///< device memory held by weights
  std::int64_t resident_experts = 0;  ///< routed experts of this rank that device memory holds at once
  std::uint64_t resident_bytes = 0;   ///< bytes of that many experts
  std::string missed_experts;         ///< with a budget: "fetched" or "in-place", and why
  QuantizationError quantization;     ///< error that MoeLayerOptions::quantize made in the weights
  std::uint64_t read_bytes = 0;       ///< bytes of host matrices that loading has read
  std::int64_t weight_segments = 0;   ///< groups of experts, each within the device's largest allocation
};

/// Progress of loading: `done` of `total` experts. Called on the loading thread.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// How the ranks of a tp group, which have the same tokens, divide the work of the shared experts.
enum class SharedSharding : std::uint8_t {
  replicated,   ///< not at all: each rank computes all its tokens
  tokens,       ///< each rank computes a share of the tokens and gets the others' results (enable_shared_expert_dp)
  intermediate  ///< each rank has a part of the intermediate size; partial sums are reduced
};
/// "replicated", "tokens", "intermediate"
const char* name(SharedSharding sharding) noexcept;

}  // namespace moecl
