#pragma once
#include <moecl/context.hpp>
#include <moecl/dense_backend.hpp>
#include <moecl/fault.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/quantization_error.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// How the experts' rows stand in memory between the products: concatenated, or in room of equal size for each.
enum class ExpertLayout : std::uint8_t { standard, batched };

/// How a layer is stored and run; the defaults suit most.
struct MoeLayerOptions {
  /// Storage of activations and weights on the device: f32, f16 or bf16. Sums and rows between kernels are f32.
  DType dtype = DType::f32;
  ExpertLayout layout = ExpertLayout::standard;
  /// Batched layout: rows each expert has room for; 0: as many as a chunk has tokens, so none can overflow.
  std::int64_t rows_per_expert = 0;
  /// Most tokens in flight; longer inputs run in chunks of equal workspace. 0: as many as fit
  /// 256 MiB of workspace, or a 16th of a GPU's memory.
  std::int64_t chunk_tokens = 0;
  /// Who computes dense products (router, shared experts) and the batched layout's; unset: what was measured faster on
  /// such a device. CLBlast needs dtype f32.
  std::optional<dense_backend::Backend> dense_backend;
  /// Layers of few tokens may take one launch (<moecl/fused_moe.hpp>). Its work-groups wait for each other: where
  /// somebody else keeps the device busy for seconds, its result is NaN and a fault. False: always several launches.
  bool one_launch = true;
  /// How the rows of every product of the routed experts, and of the shared ones, are quantized just before it. The
  /// router and the shared experts' gate see them as they are.
  OperandQuant activations, shared_activations;
  /// How plain weights of the routed experts are quantized, on the device while they are loaded; plain: not at all.
  OperandQuant quantize;
  /// Logged as warnings when a layer is made: what its checkpoint asks for and is not done.
  std::vector<std::string> warnings;
};

/// What was chosen for a layer, for logs and summaries.
struct MoeLayerReport {
  std::string dense_backend, dense_reason;      ///< router and shared experts
  std::string batched_backend, batched_reason;  ///< expert products; empty in the standard layout
  /// How their weights are stored: "bf16", "i4, f16 scales of 128 columns, zero points"; empty where there are none.
  std::string expert_format, shared_format;
  std::string activations;  ///< "plain", or what they are quantized to and how products take it
  std::int64_t chunk_tokens = 0;
  std::uint64_t weight_bytes = 0;    ///< device memory held
  QuantizationError quantization;    ///< what MoeLayerOptions::quantize made of the weights
  std::uint64_t read_bytes = 0;      ///< of the host's matrices, to load them
  std::int64_t weight_segments = 0;  ///< expert groups that keep below the device's largest allocation
};

/// Progress of loading: experts done of all. Called on the loading thread.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// One MoE layer on one device: router -> dispatch -> experts -> combine (+ shared experts).
///
/// Threads: `forward` may run from one thread a stream at a time; a layer is read-only but for
/// `replace_weights`.
/// Lifetime: the context outlives the layer; the layer outlives its commands in flight.
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

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// Bytes that `forward` of up to `tokens` tokens needs.
  std::uint64_t workspace_bytes(std::int64_t tokens) const;

  /// Compiles now what `forward` of up to `max_tokens` tokens will need, so that none waits for a compiler: every
  /// number of tokens up to 16, then the powers of two and `max_tokens`. Enqueues nothing. Stops the host.
  ///
  /// Cost: about 0.5 s a kernel on PoCL where the disk cache has none of them
  /// Errors: build_failed; invalid_argument  max_tokens is negative
  void compile(StreamView stream, std::int64_t max_tokens) const;

  /// The operands of a pass. T tokens, H hidden size, E experts, K experts a token.
  struct Forward {
    TensorView x;    ///< Shape: [T, H] or [B, S, H] with T = B * S, of options().dtype
    TensorView out;  ///< Shape: as x, f32, f16 or bf16
    /// Caller's own routing instead of the router's: both or neither. Ids outside [-1, E) set the fault word.
    TensorView ids, weights;  ///< optional. Shapes: [T, K] i32 and [T, K] f32
    /// optional, of the router's choice. Shape: [T] u8 or boolean: tokens with another value than 0 take no expert
    TensorView finished;
    /// Optional outputs.
    TensorView router_logits;  ///< Shape: [T, E] f32
    TensorView topk_ids;       ///< Shape: [T, K] i32; -1 for finished tokens
    TensorView topk_weights;   ///< Shape: [T, K] f32
    TensorView routed_out;     ///< Shape: as x, `out` without the shared experts; 0 for finished tokens
    BufferView workspace;      ///< at least workspace_bytes(T); of this stream alone until the command completes
    TensorView fault;          ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
  };
  /// out = MoE(x). What is written (outputs, fault, workspace) overlaps nothing else here; inputs may overlap inputs.
  ///
  /// Errors: invalid_argument  before anything is enqueued
  /// Async:  kernels only; never stops the host. Empty: T == 0 enqueues nothing but honours `submit`
  void forward(StreamView stream, const Forward& args, Submit submit = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
