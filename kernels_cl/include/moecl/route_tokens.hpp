#pragma once
#include <moecl/expert_sort.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <string>

/// Routes tokens in one launch: from the tokens, or from their logits, to sorted slots. The same launch can quantize
/// the tokens, if they are few. The results are those of gating_top_k, expert_sort and quantize_groups, bit for bit.
/// The router's product differs from grouped_gemm's in the order of its sums: it adds K-slices, in the same way on all
/// devices and for all numbers of tokens. With more than 16 tokens, an entry of sorted_slots past the rows may hold its
/// own index. If one launch is not possible, these operators run one after the other, in a span of the trace that says
/// why.
///
/// With the router, the work-groups that choose experts wait for the other work-groups of the launch. These need not be
/// resident at the same time. From logits of more than 16 tokens, the work-groups that choose wait for each other.
/// There is at most one of them for each compute unit.
namespace moecl::route_tokens {

struct Args {
  gating_top_k::Args gating;
  expert_sort::Args sort;             ///< its ids are those of `gating`
  quantize_groups::Args tokens = {};  ///< optional, absent without x: all rows of x, a scale for each group of a row
  /// optional, absent without a: the product from all tokens [T, H] to the logits. It is in the same launch for f16 or
  /// bf16 on an NVIDIA GPU of compute capability 7.0 or later, up to 64 tokens, if there is scratch enough
  grouped_gemm::Args router = {};
  /// Optional memory for what work-groups of the one launch hand to each other: parts of the logits, or counts of
  /// slots. It may be the memory of router.scratch.
  BufferView scratch = {};
  /// true: other kernels may run at the same time. Then no chunks wait for each other, since those kernels could keep
  /// some of them off the device for long
  bool concurrent = false;
};

/// Given that the router has a launch of its own: why the steps after it need several launches; empty when one is
/// enough. One is enough for at most 16 tokens, on an NVIDIA GPU of compute capability 7.0 or later for at most 4096 if
/// there is scratch enough and no kernel beside it; on a GPU the scores of a work-group's tokens must fit the local
/// memory together.
std::string reject_one_launch(const Args& args, const RouterSpec& spec, const Device& device);
/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const RouterSpec& spec, const Device& device);
/// The launches, decided once for all arguments of the same form (see LaunchPlan).
struct Plan {
  // Reasons, as the trace shows them; empty: one launch is enough.
  std::string why_router_alone, why_several_launches;
  LaunchPlan one_launch;
  std::int32_t teams = 1;
  std::uint64_t counter_bytes = 0;
  std::int64_t choosers = 1;                       ///< work-groups that choose experts
  std::int64_t chunk_tokens = 0;                   ///< tokens of a chooser's chunk; 0: choosers have no chunks
  std::uint64_t first_bytes = 0, words_bytes = 0;  ///< the scratch: parts or counts, then a word for each work-group
  std::int32_t patience = 1 << 21;                 ///< polls until a work-group is late, about a microsecond each
  bool codes_alone = false;                        ///< the codes have a launch of their own
  // Of the operators that have launches of their own.
  grouped_gemm::Plan router;
  LaunchPlan gating;
  expert_sort::Plan sort;
  quantize_groups::Plan tokens;
};
/// Errors: invalid_argument  `reject` says why
Plan plan(const Args& args, const RouterSpec& spec, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form.
/// Errors: build_failed  the plan's program does not build; the next call of `plan` gives another plan
void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel, or those of the operators. If a work-group arrives too late, since other kernels keep it off the
///         device, the weights become NaN and the fault word of the sort says group_late. Empty: T == 0 still writes
///         row ends, as expert_sort
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::route_tokens
