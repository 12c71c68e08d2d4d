#pragma once
#include <moecl/context.hpp>
#include <moecl/expert_rows.hpp>
#include <moecl/fault.hpp>
#include <moecl/layer_options.hpp>
#include <moecl/moe_forward.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/plain_expert.hpp>
#include <moecl/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace moecl {

class LayerAssembly;

/// One MoE layer on one device: router -> dispatch -> experts -> combine (+ shared experts).
///
/// Threads: `forward` may be called by several threads at once, each on its own stream; with MoeLayerOptions::budget
/// one call at a time. `replace_*` excludes every other call. Lifetime: the context outlives the layer; the layer
/// outlives its commands in flight.
class MoeLayer {
 public:
  /// Checks shapes, uploads and repacks the weights; `weights` may be freed afterwards. Stops the host.
  ///
  /// Errors: invalid_argument  a matrix does not fit the shape; unsupported; out_of_memory; io_error of a file of them
  MoeLayer(StreamView stream, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options = {},
           const LoadProgress& progress = {});
  ~MoeLayer();
  MoeLayer(MoeLayer&&) noexcept;
  MoeLayer& operator=(MoeLayer&&) noexcept;

  /// Writes other weights of the same shape and formats into the memory of the old ones, so that the layer holds no
  /// more. Passes enqueued on `stream` before use the old weights, later ones the new. `weights` may be freed
  /// afterwards. Stops the host. No pass may be under way on another stream.
  ///
  /// Errors: invalid_argument  another shape or format, or a stream of another device; invalid_data  NaN or infinity
  ///         where MoeLayerOptions::quantize asks for codes. Everything is checked before the first write, so after
  ///         these errors the layer keeps its weights. If writing itself fails (an exception of `progress`, io_error of
  ///         a file, device_error, out_of_memory), `forward` is refused until other weights have been written
  void replace_weights(StreamView stream, const MoeWeights& weights, const LoadProgress& progress = {});

  /// The same for one expert; the report does not change. If writing fails, only `replace_weights` makes the layer
  /// usable again. @param expert  Range: [0, E)
  void replace_expert(StreamView stream, std::int64_t expert, const ExpertMatrices& weights);

  /// One expert as the device stores it, after a header of 256 bytes that says in words how it is packed; the size of
  /// both; and the expert as plain numbers. Commands enqueued on `stream` before take effect first. Stops the host.
  /// Errors: as replace_expert
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(StreamView stream, std::int64_t expert) const;  ///< header and expert
  PlainExpert plain_expert(StreamView stream, std::int64_t expert) const;              ///< plain numbers
  /// Writes an expert that packed_expert returned, from any layer that packs its experts in the same way.
  /// Errors: invalid_argument  another packing, and as replace_expert
  void replace_packed_expert(StreamView stream, std::int64_t expert, const std::vector<std::byte>& packed);

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// Hits and misses of MoeLayerOptions::budget over the passes so far; all 0 without a budget. Stops the host.
  ResidencyCounts residency(StreamView stream) const;
  /// Whether the layer has a router; without one passes bring logits or ids.
  bool has_router() const noexcept;
  /// Bytes that `forward` of up to `tokens` tokens needs.
  std::uint64_t workspace_bytes(std::int64_t tokens) const;

  /// Compiles now the kernels for passes of 1 to 16 tokens, of each power of two up to `max_tokens`, and of
  /// `max_tokens`, with the operands that every pass has: x to out. Passes with the caller's choice, with 64-bit ids or
  /// with further outputs may still compile at first use. Enqueues nothing. Stops the host.
  ///
  /// Cost: about 0.5 s per kernel on PoCL if the disk cache has none of them
  /// Errors: build_failed; invalid_argument  max_tokens is negative
  void compile(StreamView stream, std::int64_t max_tokens) const;

  /// The operands of a pass.
  using Forward = MoeForward;
  /// out = MoE(x). Written operands (outputs, fault, workspace) overlap no other operand; inputs may overlap inputs.
  ///
  /// Errors: invalid_argument  before anything is enqueued; build_failed, device_error, out_of_memory: see Error
  /// Async:  kernels only; never stops the host. Empty: T == 0 enqueues nothing but honours `submit`
  void forward(StreamView stream, const Forward& args, Submit submit = {}) const;

  /// Fetches experts that a coming pass may need to device memory, if MoeLayerOptions::budget makes experts take turns
  /// there: those that `tokens` would choose in this layer. For example, this layer's router sees the hidden states of
  /// the previous layer, and the experts arrive while the previous layer computes. `stream` is not that of the passes.
  /// Prefetching changes no bit of a result: an expert that was not foreseen is a miss as without it. Passes and
  /// prefetches of this layer take turns by themselves on any streams. Experts of a pass keep their slots until the
  /// pass is over, and a pass waits for the prefetches before it.
  /// Source: FATE (arXiv 2502.12224): gates of adjacent layers choose alike
  ///
  /// Nothing is enqueued without a budget. Nothing is fetched if the slots might not hold all experts of the tokens, or
  /// for more tokens than report().chunk_tokens.
  /// @param tokens     x, ids or given_logits as for `forward`; expert_input may be absent
  /// @param workspace  workspace_bytes of that many tokens. Reserved for this call until its last command completes
  /// Errors: invalid_argument  before anything is enqueued
  /// Async:  kernels and markers; never stops the host. Empty: T == 0 enqueues nothing but honours `submit`
  /// Threads: `prefetch` and `forward` of a layer are called by one thread at a time
  void prefetch(StreamView stream, const MoeInputs& tokens, BufferView workspace, Submit submit = {}) const;

  /// Runs the routed experts alone, over rows that the caller's own exchange brought. The router, the shared experts
  /// and weights on the experts' input are left to the caller.
  ///
  /// Errors: invalid_argument  before anything is enqueued; unsupported  CLBlast multiplies, and rows are not in room
  ///         of equal size
  /// Async:  kernels only; never stops the host. Empty: without rows sums are 0; `submit` is honoured
  void forward_experts(StreamView stream, const ExpertRows& rows, Submit submit = {}) const;
  /// Bytes of workspace that `forward_experts` needs. @param slots  With slot_rows: M * S
  std::uint64_t expert_workspace_bytes(std::int64_t rows, std::int64_t slots = 0) const;

 private:
  friend class LayerBuilder;
  explicit MoeLayer(LayerAssembly& weights);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
