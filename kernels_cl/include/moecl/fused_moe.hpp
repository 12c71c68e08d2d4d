#pragma once
#include <moecl/combine.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <string>
#include <vector>

/// An MoE layer of few tokens in one launch: router, choice of experts, sort, the experts' two products with the
/// activation between them, and the weighted sum. All work-groups are resident at the same time and wait for each other
/// between the steps (a grid barrier).
///
/// Each product sums in f32 in a fixed order, so results are bitwise reproducible. A token's result does not depend on
/// the other tokens while their number stays in one range: up to 16, up to 32, or up to 64. Logits are summed in
/// K-slices, and so is the second product where there are few tiles: its order of summation is not grouped_gemm's.
/// Source: vLLM's fused_moe, with the router
namespace moecl::fused_moe {

/// The arguments of the steps, as if each were enqueued on its own. The launch itself sorts the slots: a_index and
/// row_ends of the products and slot_rows of the sum are given as for separate steps, but are not read.
struct Args {
  grouped_gemm::Args router;  ///< from all tokens [T, H] f16 or bf16 to the logits [T, E] f32
  gating_top_k::Args gating;  ///< reads these logits
  /// reads the same tokens; with its activation. out: [T * K, I] of the tokens' type. Weights: of that type, or codes
  grouped_gemm::Args gate_up;
  grouped_gemm::Args down;  ///< from gate_up's out to f32 rows [T * K, H], which are not written where K is sliced
  combine::Args combine;    ///< sums down's rows by the gating's weights
  TensorView fault;         ///< optional in/out. Shape: [4] i32, see fault.hpp
  BufferView scratch;       ///< at least scratch_bytes, at a multiple of 16 bytes; contents undefined before and after
  /// optional, both or none, by the same rules: `tokens` quantizes the tokens to 8-bit codes for gate_up; `activated`
  /// quantizes gate_up's out, which is f32 then, to 8-bit codes for down
  quantize_groups::Args tokens = {}, activated = {};
};

struct Config {
  std::string variant;              ///< empty: chosen by operands and device
  std::int32_t patience = 1 << 21;  ///< polls until a work-group counts as late, about a microsecond for each poll
  std::int32_t groups = 0;          ///< work-groups; 0: as many as are resident at the same time
  std::int32_t down_slices = 0;  ///< K-slices of the second product, for tensor cores; 0: gives all compute units work
};

/// Units: bytes. `tokens`, `hidden` and `experts` are the sizes of the router's product, `top_k` a token's experts.
std::uint64_t scratch_bytes(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, std::int64_t top_k,
                            const Config& config, const DeviceCaps& caps);

/// nv_sm80: NVIDIA tensor cores. nv_sm90a: Hopper's tensor cores, where f8 rows are multiplied by k_major panels.
/// t0: one work-item, on devices with wide float vectors; for tests, never chosen.
const std::vector<grouped_gemm::Variant>& variants();

/// Up to this many tokens, one launch was measured to be no slower than separate launches (bench/README.md). Layers
/// still use separate launches where shared experts have a queue of their own.
inline constexpr std::int64_t worthwhile_tokens = 16;
/// The same limit where 16-bit rows are multiplied by codes.
inline constexpr std::int64_t worthwhile_weight_only_tokens = 1;

/// Why the steps need separate launches; empty when one launch is enough. One launch needs NVIDIA tensor cores, all
/// experts in one buffer, at most 64 f16 or bf16 tokens, and the same kind of weights in both products: of the tokens'
/// type, or codes that tensor cores multiply (at most 32 tokens then; 16 where rows are quantized too).
std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// The launch of a layer, decided once for all arguments of one form.
struct Plan {
  LaunchPlan launch;
  std::string failing;  ///< key by which the device remembers that this variant does not build
  std::int64_t groups = 0;
  std::uint64_t parts_bytes = 0;  ///< of partial logits, at the start of the scratch; stamps follow
  std::uint64_t rows_first = 0;   ///< byte of the scratch where the rows of the K-slices begin
  std::int64_t down_slices = 1;   ///< K-slices of the second product
  std::int32_t patience = 0;
};
/// Errors: invalid_argument  `reject` says why; operands are not connected as Args says
Plan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
/// Errors: build_failed  the plan's variant does not build; `reject` says so from then on
void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why; operands are not connected as Args says
/// Async:  one kernel. If a work-group does not reach a barrier in time (other kernels keep it off the device), `out`
///         becomes NaN and the fault word says group_late. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config = {},
             Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::fused_moe
