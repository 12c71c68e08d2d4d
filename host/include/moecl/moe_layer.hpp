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

  /// Takes other weights of the same shape, stored in the same formats, into the memory of the old ones: no more of it
  /// is held. Passes enqueued on `stream` before have the old weights, later ones the new; `weights` may be freed
  /// afterwards. Stops the host. No pass may be under way on another stream.
  ///
  /// Errors: invalid_argument  another shape or format, or a stream of another device; invalid_data  NaN or infinity
  ///         where MoeLayerOptions::quantize asks for codes. All is looked at before the first write, so the layer then
  ///         keeps what it has. Where writing itself fails (what `progress` throws, io_error of a file, device_error,
  ///         out_of_memory), `forward` is refused until other weights have come
  void replace_weights(StreamView stream, const MoeWeights& weights, const LoadProgress& progress = {});

  /// The same of one expert; the report stays what it was. Where writing fails, only `replace_weights` makes the layer
  /// usable again. @param expert  Range: [0, E)
  void replace_expert(StreamView stream, std::int64_t expert, const ExpertMatrices& weights);

  /// One expert as the device has it, behind 256 bytes that say in words how it is packed; its size; and as plain
  /// numbers. After what was enqueued on `stream` before. Stops the host. Errors: as replace_expert
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(StreamView stream, std::int64_t expert) const;  ///< those bytes
  PlainExpert plain_expert(StreamView stream, std::int64_t expert) const;              ///< those numbers
  /// Takes what packed_expert gave, of any layer that packs its experts so.
  /// Errors: invalid_argument  another packing, and as replace_expert
  void replace_packed_expert(StreamView stream, std::int64_t expert, const std::vector<std::byte>& packed);

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// What became of MoeLayerOptions::budget in the passes so far; nothing without one. Stops the host.
  ResidencyCounts residency(StreamView stream) const;
  /// Whether the layer has a router; without one passes bring logits or ids.
  bool has_router() const noexcept;
  /// Bytes that `forward` of up to `tokens` tokens needs.
  std::uint64_t workspace_bytes(std::int64_t tokens) const;

  /// Compiles now what passes of 1 to 16 tokens, of each power of two up to `max_tokens` and of `max_tokens` need, with
  /// the operands that every pass has: x to out. Passes with a choice, ids of 64 bits or outputs beside it may compile
  /// at first use. Enqueues nothing. Stops the host.
  ///
  /// Cost: about 0.5 s a kernel on PoCL where the disk cache has none of them
  /// Errors: build_failed; invalid_argument  max_tokens is negative
  void compile(StreamView stream, std::int64_t max_tokens) const;

  /// The operands of a pass.
  using Forward = MoeForward;
  /// out = MoE(x). What is written (outputs, fault, workspace) overlaps nothing else here; inputs may overlap inputs.
  ///
  /// Errors: invalid_argument  before anything is enqueued; build_failed, device_error, out_of_memory: see Error
  /// Async:  kernels only; never stops the host. Empty: T == 0 enqueues nothing but honours `submit`
  void forward(StreamView stream, const Forward& args, Submit submit = {}) const;

  /// Brings experts that a pass to come may need to device memory, where MoeLayerOptions::budget lets them take turns:
  /// those that `tokens` would choose here. So hidden states of the layer before, seen by this layer's router, bring
  /// them while that one computes; `stream` is another than that of the passes. Results keep their bits: who was not
  /// foreseen is missed as before. This layer's passes and prefetches take turns by themselves, whatever their streams:
  /// experts of a pass stay until it is over, and a pass waits for what was prefetched before it.
  /// Source: FATE (arXiv 2502.12224): gates of adjacent layers choose alike
  ///
  /// Nothing is enqueued without a budget, and nothing is brought for more tokens than fit the slots with all their
  /// experts, nor beyond report().chunk_tokens.
  /// @param tokens     x, ids or given_logits as of `forward`; expert_input may be absent
  /// @param workspace  workspace_bytes of so many tokens; of this call alone until its last command completes
  /// Errors: invalid_argument  before anything is enqueued
  /// Async:  kernels and markers; never stops the host. Empty: T == 0 enqueues nothing but honours `submit`
  /// Threads: with `forward` of this layer, from one at a time
  void prefetch(StreamView stream, const MoeInputs& tokens, BufferView workspace, Submit submit = {}) const;

  /// The routed experts alone, over rows that an exchange of the caller's brought. Router, shared experts and weights
  /// on the experts' input are the caller's, too.
  ///
  /// Errors: invalid_argument  before anything is enqueued; unsupported  rows without room of equal size where CLBlast
  ///         multiplies
  /// Async:  kernels only; never stops the host. Empty: no rows leave sums of 0; `submit` is honoured
  void forward_experts(StreamView stream, const ExpertRows& rows, Submit submit = {}) const;
  /// Bytes of its workspace, of so many rows and, of who sums, slots: M * S.
  std::uint64_t expert_workspace_bytes(std::int64_t rows, std::int64_t slots = 0) const;

 private:
  friend class LayerBuilder;
  explicit MoeLayer(LayerAssembly& weights);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
