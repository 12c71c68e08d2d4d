#pragma once
#include <moecl/expert_sort.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <string>

/// From few tokens, or their logits, to sorted slots in one launch, which makes codes of the tokens beside it: what
/// gating_top_k, expert_sort and quantize_groups give, bit for bit, and what grouped_gemm gives for the router, whose
/// sums are in another order: of slices of K, the same on all devices and for all numbers of tokens. Where one launch
/// cannot do it, those run, in a span of the trace that says why.
///
/// With the router work-groups that choose wait for the others of the launch, which need not be resident with them.
namespace moecl::route_tokens {

struct Args {
  gating_top_k::Args gating;
  expert_sort::Args sort;             ///< its ids are those of `gating`
  quantize_groups::Args tokens = {};  ///< optional: absent without x. All rows of x, by a scale for each group of a row
  /// optional: absent without a. Of all tokens [T, H] to the logits. With f16 or bf16 on an NVIDIA GPU of compute
  /// capability 7.0 it is in the same launch, up to 64 tokens, if its scratch has room for parts of the logits
  grouped_gemm::Args router = {};
};

/// Why the steps after the router take launches of their own, where the router does; empty when one is enough: at most
/// 16 tokens, whose scores fit the local memory together on a GPU.
std::string reject_one_launch(const Args& args, const RouterSpec& spec, const Device& device);
/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const RouterSpec& spec, const Device& device);
/// The launches, decided once for all arguments of one form.
struct Plan {
  // As the trace says it; empty: one launch is enough.
  std::string why_router_alone, why_several_launches;
  LaunchPlan one_launch;
  std::int32_t teams = 1;
  std::uint64_t counter_bytes = 0;
  std::int64_t choosers = 1;        ///< work-groups that choose
  std::int64_t helpers = 0;         ///< work-groups that help them
  std::int32_t patience = 1 << 21;  ///< looks for a helper until it is late, about a microsecond each
  // Of the operators.
  grouped_gemm::Plan router;
  LaunchPlan gating;
  expert_sort::Plan sort;
  quantize_groups::Plan tokens;
};
/// Errors: invalid_argument  `reject` says why
Plan plan(const Args& args, const RouterSpec& spec, const Device& device);
/// By the plan of arguments of that form.
/// Errors: build_failed  the plan's program does not build; the next plan is another one
void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel, or those of the operators. Where a helper does not come in time (other kernels keep it from the
///         device), weights become NaN and the sort's fault word says group_late. Empty: T == 0 still writes row ends,
///         as expert_sort
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::route_tokens
