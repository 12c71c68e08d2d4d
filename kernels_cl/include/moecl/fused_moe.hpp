#pragma once
#include <moecl/combine.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <string>
#include <vector>

/// The layer of few tokens in one launch: router, choice, sort, the experts' two products with the activation between
/// them, and the weighted sum. Its work-groups are resident together and wait for each other between the steps.
///
/// Sums of each product are f32 and in a fixed order, so results are bitwise reproducible, and a token's do not depend
/// on the other tokens up to 16, 32 or 64 of them; logits are summed in slices of K, as is the
/// second product where there are few tiles, in another order than grouped_gemm's. Source: vLLM's fused_moe, with the
/// router
namespace moecl::fused_moe {

/// The steps as they would be enqueued one after the other. The slots are sorted within the launch: index, row ends and
/// slot rows of the products and the sum are as for the steps, but not read.
struct Args {
  grouped_gemm::Args router;  ///< of all tokens [T, H] f16 or bf16 to the logits [T, E] f32
  gating_top_k::Args gating;  ///< of those logits
  /// of the same tokens, with its activation; out: [T * K, I] of their type. Weights of that type, or codes
  grouped_gemm::Args gate_up;
  grouped_gemm::Args down;  ///< of what gate_up gives, to f32 rows [T * K, H]; slices of K do not write there
  combine::Args combine;    ///< of what down gives, by the gating's weights
  TensorView fault;         ///< optional in/out. Shape: [4] i32, see fault.hpp
  BufferView scratch;       ///< at least scratch_bytes from a multiple of 16; contents undefined before and after
  /// optional, both or none: codes of 8 bits of the tokens, which gate_up multiplies then, and of what it gives, as
  /// f32, for `down`. By the same rules
  quantize_groups::Args tokens = {}, activated = {};
};

struct Config {
  std::string variant;              ///< empty: the choice of `select`
  std::int32_t patience = 1 << 21;  ///< looks for a work-group until it is late, about a microsecond each
  std::int32_t groups = 0;          ///< work-groups; 0: as many as are resident together
  std::int32_t down_slices = 0;  ///< of the second product's K, for tensor cores; 0: as gives all compute units parts
};

/// Units: bytes. Of the tokens, hidden columns and experts of the router's product, and the experts of a token.
std::uint64_t scratch_bytes(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, std::int64_t top_k,
                            const Config& config, const DeviceCaps& caps);

/// nv_sm80, on NVIDIA's tensor cores; nv_sm90a, where f8 meets panels in k_major on Hopper's; t0, of one work-item,
/// where float vectors are wide: for tests, never chosen.
const std::vector<grouped_gemm::Variant>& variants();

/// Up to so many tokens one launch was measured to be no slower than several (bench/README.md). Layers take several all
/// the same where shared experts have a queue of their own.
inline constexpr std::int64_t worthwhile_tokens = 16;
/// The same where 16-bit rows meet codes.
inline constexpr std::int64_t worthwhile_weight_only_tokens = 1;

/// Why the steps take launches of their own; empty when one is enough: at most 64 tokens, f16 or bf16, weights of that
/// type or codes that tensor cores multiply, both products' alike (32 tokens; 16 where rows become codes too), all
/// experts in one buffer, on NVIDIA's tensor cores.
std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// The launch of a layer, decided once for all arguments of one form.
struct Plan {
  LaunchPlan launch;
  std::string failing;  ///< by which the device remembers that this variant does not build
  std::int64_t groups = 0;
  std::uint64_t parts_bytes = 0;  ///< of the scratch; stamps follow
  std::uint64_t rows_first = 0;   ///< where in the scratch the rows of slices begin
  std::int64_t down_slices = 1;   ///< of the second product's K
  std::int32_t patience = 0;
};
/// Errors: invalid_argument  `reject` says why; operands are not connected as Args says
Plan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// By the plan of arguments of that form.
/// Errors: build_failed  the plan's variant does not build, which `reject` says from then on
void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why; operands are not connected as Args says
/// Async:  one kernel. Where a work-group does not come in time (other kernels keep it from the device), `out` becomes
///         NaN and the fault word says group_late. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config = {},
             Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::fused_moe
