#pragma once
#include <moecl/expert_sort.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/quantize_groups.hpp>

#include <string>

/// From a router's logits to sorted slots, in one launch where there are few tokens, which makes codes of the tokens
/// beside it: what gating_top_k, expert_sort and quantize_groups give, bit for bit. Where one launch cannot do it,
/// those run, in a span of the trace that says why.
namespace moecl::route_tokens {

struct Args {
  gating_top_k::Args gating;
  expert_sort::Args sort;             ///< its ids are those of `gating`
  quantize_groups::Args tokens = {};  ///< optional: absent without x. All rows of x, by a scale for each group of a row
};

/// Why the steps take launches of their own; empty when one is enough: at most 16 tokens, whose scores fit the local
/// memory together on a GPU.
std::string reject_one_launch(const Args& args, const RouterSpec& spec, const Device& device);
/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const RouterSpec& spec, const Device& device);
/// The launches of choice and sort, decided once for all arguments of one form.
struct Plan {
  std::string why_several_launches;  ///< as the trace says it; empty: one is enough
  LaunchPlan one_launch;
  std::int32_t teams = 1;
  std::uint64_t counter_bytes = 0;
  // Of the operators.
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
/// Async:  one kernel, or those of the operators. Empty: T == 0 still writes row ends, as expert_sort
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::route_tokens
