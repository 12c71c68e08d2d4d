#include "kernels_cl/routing/gating_top_k.hpp"

#include <moecl/gating_top_k.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource gating_top_k;
}

namespace moecl::gating_top_k {

static_assert(SOFTMAX == static_cast<int>(ScoreFunction::softmax));
static_assert(SIGMOID == static_cast<int>(ScoreFunction::sigmoid));
static_assert(NO_FUNCTION == static_cast<int>(ScoreFunction::none));
static_assert(SQRT_SOFTPLUS == static_cast<int>(ScoreFunction::sqrtsoftplus));
static_assert(SPARSE_MIXER == static_cast<int>(ScoreFunction::sparse_mixer));
static_assert(BEFORE_TOP_K == static_cast<int>(ScoreOrder::before_top_k));
static_assert(AFTER_TOP_K == static_cast<int>(ScoreOrder::after_top_k));
static_assert(GROUP_MAX == static_cast<int>(GroupScore::max));
static_assert(GROUP_SUM_OF_TOP_2 == static_cast<int>(GroupScore::sum_of_top_2));

std::string reject(const RouterSpec& spec, std::int64_t experts) {
  const std::int32_t chosen = spec.chosen();
  if (spec.fused_shared_experts < 0)
    return fmt::format("fused_shared_experts: {} is negative", spec.fused_shared_experts);
  if (chosen < 1 || chosen > experts) return fmt::format("top_k: {} of {} experts cannot be chosen", chosen, experts);
  if (spec.groups < 1 || experts % spec.groups != 0)
    return fmt::format("groups: {} experts do not form {} equal groups", experts, spec.groups);
  if (spec.kept_groups < 1 || spec.kept_groups > spec.groups)
    return fmt::format("kept_groups: {} of {} groups cannot be kept", spec.kept_groups, spec.groups);
  if (const std::int64_t left = experts / spec.groups * spec.kept_groups; chosen > left)
    return fmt::format("top_k: {} experts cannot be chosen from {} of {} groups of {}: they hold {}", chosen,
                       spec.kept_groups, spec.groups, experts / spec.groups, left);
  if (spec.score == ScoreFunction::sparse_mixer && (spec.order != ScoreOrder::after_top_k || spec.groups != 1))
    return fmt::format("score: a sparse mixer needs ScoreOrder::after_top_k and 1 group, got {} and {}",
                       spec.order == ScoreOrder::after_top_k ? "that" : "before_top_k", spec.groups);
  if (spec.weight_on_input && spec.top_k != 1) return fmt::format("weight_on_input: needs top_k 1, got {}", spec.top_k);
  return {};
}

namespace {

std::string reject_table(const Args& args, const RouterSpec& spec) {
  const TensorView &experts = args.table.experts, &token_ids = args.table.token_ids;
  if (!experts.present()) return {};
  if (args.selection_bias.present() || args.scores.present() || spec.score == ScoreFunction::sparse_mixer)
    return "table: goes with neither selection_bias nor scores nor a sparse mixer, which are of a choice";
  if (experts.rank != 2 || experts.dtype != DType::i32 || experts.shape[1] != spec.chosen() || !experts.contiguous())
    return fmt::format("table: expected contiguous i32[V, {}], got {}", spec.chosen(), experts.describe());
  if (token_ids.rank != 1 || (token_ids.dtype != DType::i32 && token_ids.dtype != DType::i64) ||
      token_ids.shape[0] != args.logits.shape[0])
    return fmt::format("token_ids: expected i32[{}] or i64[{}], got {}", args.logits.shape[0], args.logits.shape[0],
                       token_ids.describe());
  return reject_optional_indices("fault", args.fault, 4);
}

gating_by_table_args table_args(const Args& args, const RouterSpec& spec) {
  return {.rule = kernel_args(args, spec),
          .experts_first = first_element(args.table.experts),
          .token_ids_first = first_element(args.table.token_ids),
          .fault_first = first_element(args.fault),
          .vocabulary = args.table.experts.shape[0],
          .wide = args.table.token_ids.dtype == DType::i64 ? 1 : 0,
          .pad = 0};
}

}  // namespace

std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device) {
  if (args.logits.rank != 2 || !is_activation_dtype(args.logits.dtype))
    return fmt::format("logits: expected float [T, E], got {}", args.logits.describe());
  const std::int64_t tokens = args.logits.shape[0], experts = args.logits.shape[1];
  if (std::string reason = reject(spec, experts); !reason.empty()) return reason;
  const auto is_output = [&](const TensorView& view) {
    return view.rank == 2 && view.shape[0] == tokens && view.shape[1] == spec.top_k;
  };
  if (!is_output(args.ids) || args.ids.dtype != DType::i32)
    return fmt::format("ids: expected i32[{}, {}], got {}", tokens, spec.top_k, args.ids.describe());
  if (!is_output(args.weights) || !is_activation_dtype(args.weights.dtype))
    return fmt::format("weights: expected float [{}, {}], got {}", tokens, spec.top_k, args.weights.describe());
  if (args.selection_bias.present() &&
      (args.selection_bias.rank != 1 || !is_activation_dtype(args.selection_bias.dtype) ||
       args.selection_bias.shape[0] != experts))
    return fmt::format("selection_bias: expected float [{}], got {}", experts, args.selection_bias.describe());
  if (args.selection_bias.present() && spec.score == ScoreFunction::sparse_mixer)
    return "selection_bias: a sparse mixer chooses by the logits alone";
  if (args.scores.present() && (args.scores.rank != 2 || args.scores.dtype != DType::f32 ||
                                args.scores.shape[0] != tokens || args.scores.shape[1] != experts))
    return fmt::format("scores: expected f32[{}, {}], got {}", tokens, experts, args.scores.describe());
  if (args.scores.present() && spec.order == ScoreOrder::after_top_k)
    return "scores: with ScoreOrder::after_top_k only the chosen experts have one";
  if (args.finished.present() &&
      (args.finished.rank != 1 || size_bytes(args.finished.dtype) != 1 || args.finished.shape[0] != tokens))
    return fmt::format("finished: expected u8[{}] or bool[{}], got {}", tokens, tokens, args.finished.describe());
  if (std::string reason = reject_table(args, spec); !reason.empty()) return reason;
  if (std::string reason = reject_lanes(config.lanes, device.caps); !reason.empty()) return reason;
  const std::size_t needed = local_bytes(team_words(experts, spec), token_lanes(experts, spec, config, device), 1);
  if (needed > device.caps.local_mem_bytes)
    return fmt::format("logits: {} experts in {} groups need {} bytes of local memory, the device has {}", experts,
                       spec.groups, needed, device.caps.local_mem_bytes);
  return {};
}

LaunchPlan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device) {
  const std::string reason = reject(args, spec, config, device);
  require(reason.empty(), "gating_top_k: {}", reason);
  const std::int32_t lanes = token_lanes(args.logits.shape[1], spec, config, device);
  const auto local = static_cast<std::size_t>(lanes);
  return {args.table.experts.present() ? "by_table"
          : lanes == 1                 ? "token_per_item"
                                       : "token_per_group",
          fmt::format("-DLANES={}{}{}", lanes, options(args), shuffle_option(lanes, device.caps)),
          {static_cast<std::size_t>(args.logits.shape[0]) * local, 1, 1},
          {local, 1, 1},
          fmt::format("{} top {}", args.logits.describe(), spec.top_k),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, const RouterSpec& spec, Submit submit) {
  if (args.table.experts.present()) {
    const gating_by_table_args by_table = table_args(args, spec);
    return launch_planned(stream, source::gating_top_k, "gating_top_k_by_table", plan, submit, args.logits,
                          args.finished, args.table.experts, args.table.token_ids, args.ids, args.weights, args.fault,
                          words_memory(by_table.rule.team_words, 1), by_table);
  }
  const gating_top_k_args given = kernel_args(args, spec);
  launch_planned(stream, source::gating_top_k, "gating_top_k", plan, submit, args.logits, args.selection_bias,
                 args.finished, args.ids, args.weights, args.scores, words_memory(given.team_words, 1), given);
}

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config, Submit submit) {
  enqueue(stream, plan(args, spec, config, *stream.device), args, spec, submit);
}

OperatorCost cost(const Args& args) {
  std::uint64_t bytes = args.logits.size_bytes() + args.ids.size_bytes() + args.weights.size_bytes();
  for (const TensorView& view : {args.selection_bias, args.finished, args.scores, args.table.token_ids})
    if (view.present()) bytes += view.size_bytes();
  // An exponential counts as one operation. The choice compares every expert once for each of the K.
  const auto logits = static_cast<std::uint64_t>(args.logits.elements());
  return {bytes, logits * (3 + static_cast<std::uint64_t>(args.ids.shape[1]))};
}

}  // namespace moecl::gating_top_k
