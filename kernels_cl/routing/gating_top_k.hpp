#pragma once
// Options and arguments of the kernels that choose experts (choose_experts.clh), also of those that do more.
#include <moecl/gating_top_k.hpp>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/routing/gating_top_k_args.h"
#include "runtime/kernel.hpp"

namespace moecl::gating_top_k {

/// Local memory of a team of lanes, in words of 8 bytes: bests (one per step, which may be 4 experts), keys, chosen
/// logits, keys of groups. Keys have padding: a read of 16 may begin at the last expert of a group.
inline std::int32_t team_words(std::int64_t experts, const RouterSpec& spec) {
  const std::int64_t halves =
      (experts + 31) / 16 * 16 + (spec.top_k + 15) / 16 * 16 + (spec.kept_groups < spec.groups ? spec.groups : 1);
  return static_cast<std::int32_t>((experts + 3) / 4 + (halves + 1) / 2);
}
inline LocalMemory words_memory(std::int32_t words, std::int32_t teams) {
  return {static_cast<std::size_t>(words) * static_cast<std::size_t>(teams) * sizeof(std::uint64_t)};
}
inline std::size_t local_bytes(std::int32_t words, std::int32_t lanes, std::int32_t teams) {
  return words_memory(words, teams).size_bytes +
         static_cast<std::size_t>(lanes) * (sizeof(float) + sizeof(std::uint64_t));
}

/// Work-items per token: the tuned number, or the default if the tuned one needs too much local memory.
inline std::int32_t token_lanes(std::int64_t experts, const RouterSpec& spec, const Config& config,
                                const Device& device) {
  constexpr std::int32_t on_gpu = 32;
  const std::int32_t lanes = tuned_lanes("gating_top_k", config.lanes, device, on_gpu);
  const bool fits = local_bytes(team_words(experts, spec), lanes, 1) <= device.caps.local_mem_bytes;
  return fits ? lanes : row_lanes(config.lanes, device.caps, on_gpu);
}

inline std::string options(const Args& args) {
  return dtype_option("LOGITS_DTYPE", args.logits) + dtype_option("BIAS_DTYPE", args.selection_bias) +
         dtype_option("WEIGHT_DTYPE", args.weights);
}

/// Options of a program with the code of this rule alone. @param team  work-items of a token
inline std::string rule_options(const Args& args, const RouterSpec& spec, std::int32_t team, const DeviceCaps& caps) {
  const bool is_warp = team == 32 && caps.nv_compute_capability >= 70;
  const bool in_registers =
      is_warp && spec.score != ScoreFunction::sparse_mixer && args.logits.shape[1] <= 512 && spec.chosen() <= team;
  return fmt::format(
      " -DKNOWN_RULE=1 -DCHOICES={} -DTOP_K={} -DSHARED={} -DSCORE_FUNCTION={} -DSCORE_ORDER={} -DGROUPS={} "
      "-DKEPT_GROUPS={} -DGROUP_SCORE={} -DIN_REGISTERS={:d}",
      args.logits.shape[1], spec.top_k, spec.fused_shared_experts, static_cast<int>(spec.score),
      static_cast<int>(spec.order), spec.groups, spec.kept_groups, static_cast<int>(spec.group_score), in_registers);
}

inline gating_top_k_args kernel_args(const Args& args, const RouterSpec& spec) {
  const auto experts = static_cast<std::int32_t>(args.logits.shape[1]);
  const std::int32_t all_experts = experts + spec.fused_shared_experts;
  return {.logits_first = first_element(args.logits),
          .selection_bias_first = first_element(args.selection_bias),
          .finished_first = first_element(args.finished),
          .ids_first = first_element(args.ids),
          .weights_first = first_element(args.weights),
          .scores_first = first_element(args.scores),
          .logits_stride = args.logits.stride[0],
          .ids_stride = args.ids.stride[0],
          .weights_stride = args.weights.stride[0],
          .scores_stride = args.scores.stride[0],
          .experts = experts,
          .top_k = spec.top_k,
          .score = static_cast<std::int32_t>(spec.score),
          .order = static_cast<std::int32_t>(spec.order),
          .groups = spec.groups,
          .kept_groups = spec.kept_groups,
          .group_score = static_cast<std::int32_t>(spec.group_score),
          .renormalise = std::int32_t{spec.renormalise},
          .finished_id = args.finished_id.value_or(all_experts),
          .team_words = team_words(experts, spec),
          .epsilon = spec.renormalise_epsilon,
          .minimum = spec.renormalise_minimum,
          .scaling_factor = spec.scaling_factor,
          .mixer_limit = 2 * spec.mixer_jitter,
          .shared = spec.fused_shared_experts,
          .pad = 0};
}

}  // namespace moecl::gating_top_k
