#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/router_spec.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <optional>
#include <string>

/// Routes every token to its K best experts: scores, groups, choice and weights in one kernel.
///
/// Equal scores go to the lower expert id on every device, so a plan is reproducible. The ids of a token are always
/// distinct and in range: NaN scores lose to every number (among themselves the lowest id first) and get weight 0. Of
/// infinite logits softmax takes the limit: experts at +inf share the weight equally; a row of -inf gets weights 0.
/// Groups compare by the same rules, with NaN where their sum of two is; experts of the others are never chosen.
/// ScoreFunction::none and sqrtsoftplus hand infinite logits on as weights.
///
/// Scores, sums and choice are f32, rounded once to the type of the weights. The keys of a token stand in local memory:
/// about 5 bytes an expert, 4 a group and 4 for each of the K.
namespace moecl::gating_top_k {

/// Experts by token id: the router only weighs them. Source: hash routing of DeepSeek-V4's first layers, in vLLM
struct TokenTable {
  /// Shape: [V, K] i32 contiguous, K as RouterSpec::chosen. Range: [0, E); others are no expert, -1 with weight 0
  TensorView experts;
  TensorView token_ids;  ///< Shape: [T] i32 or i64. Range: [0, V); others have no experts and set the fault word
};

struct Args {
  TensorView logits;          ///< Shape: [T, E] f32, f16 or bf16, rows may be strided
  TensorView selection_bias;  ///< optional. Shape: [E] f32, f16 or bf16; added to the score for the choice only
  TensorView ids;             ///< out. Shape: [T, K] i32, by falling choice score
  TensorView weights;         ///< out. Shape: [T, K] f32, f16 or bf16
  TensorView scores = {};  ///< optional out. Shape: [T, E] f32: scores of all experts, without bias; before_top_k only
  TensorView finished = {};  ///< optional. Shape: [T] u8 or boolean: not 0 makes the ids of that token `finished_id`
  std::optional<std::int32_t> finished_id = {};  ///< absent: past all experts, "no expert"
  TokenTable table = {};  ///< optional, without selection_bias, scores and sparse mixers. Ids are in the table's order
  TensorView fault = {};  ///< optional in/out, of `table`. Shape: [4] i32, see fault.hpp
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items a token; 0 picks the tuned ones, else 1 on a CPU and 32 elsewhere
};

/// Why no token can choose among E experts by this rule; empty when it can.
std::string reject(const RouterSpec& spec, std::int64_t experts);
/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// By the plan of arguments of that form.
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
/// Source: RouterSpec's
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config = {},
             Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::gating_top_k
