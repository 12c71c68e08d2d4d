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
/// Of equal scores the lower expert id wins on every device, so the choice is reproducible. A token's ids are always
/// distinct and in range. A NaN score loses to every number and gets weight 0; of several, the lowest id comes first.
/// For infinite logits softmax takes the limit: experts at +inf share the weight equally; a row of -inf gets weights 0.
/// Groups are compared by the same rules; a group's score is NaN where its sum of two is. Experts of groups that lose
/// are never chosen. ScoreFunction::none and sqrtsoftplus pass infinite logits on as weights.
///
/// Scores, sums and choice are f32; weights are rounded once, to their type. The sort keys of a token are in local
/// memory: about 5 bytes for each expert, 4 for each group and 4 for each of the K.
namespace moecl::gating_top_k {

/// Experts by token id: the router only weights them. Source: hash routing of DeepSeek-V4's first layers, in vLLM
struct TokenTable {
  /// Shape: [V, K] i32 contiguous, K as RouterSpec::chosen. Range: [0, E); others are no expert: -1, weight 0
  TensorView experts;
  TensorView token_ids;  ///< Shape: [T] i32 or i64. Range: [0, V); others have no experts and set the fault word
};

struct Args {
  TensorView logits;          ///< Shape: [T, E] f32, f16 or bf16, rows may be strided
  TensorView selection_bias;  ///< optional. Shape: [E] f32, f16 or bf16; added to the score for the choice only
  TensorView ids;             ///< out. Shape: [T, K] i32, in descending order of the choice score
  TensorView weights;         ///< out. Shape: [T, K] f32, f16 or bf16
  TensorView scores = {};  ///< optional out. Shape: [T, E] f32: scores of all experts, without bias; before_top_k only
  TensorView finished = {};  ///< optional. Shape: [T] u8 or boolean: nonzero sets all ids of the token to `finished_id`
  std::optional<std::int32_t> finished_id = {};  ///< absent: an id past all experts, "no expert"
  TokenTable table = {};  ///< optional; excludes selection_bias, scores and sparse mixers. Ids keep the table's order
  TensorView fault = {};  ///< optional in/out, with `table`. Shape: [4] i32, see fault.hpp
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items for each token; 0 picks the tuned number, else 1 on a CPU and 32 elsewhere
};

/// Why no token can choose among E experts by this rule; empty when it can.
std::string reject(const RouterSpec& spec, std::int64_t experts);
/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, const RouterSpec& spec, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
/// Source: RouterSpec's
void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config = {},
             Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::gating_top_k
