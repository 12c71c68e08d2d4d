#include <moecl/route_tokens.hpp>

#include <bit>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/quantize/quantize_groups.hpp"
#include "kernels_cl/routing/expert_sort.hpp"
#include "kernels_cl/routing/gating_top_k.hpp"
#include "kernels_cl/routing/route_tokens_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource route_tokens;
}

namespace moecl::route_tokens {
namespace {

constexpr std::int64_t most_tokens = 16;

/// On a GPU a team for each token, of as many lanes as gating_top_k has.
expert_sort::Lanes lanes_for(const gating_top_k::Args& gating, const RouterSpec& spec, const Device& device) {
  if (device.caps.type == DeviceType::cpu) return {1};
  const auto teams = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint64_t>(gating.logits.shape[0])));
  return {gating_top_k::token_lanes(gating.logits.shape[1], spec, {}, device) * teams, teams};
}

std::string reject_codes(const quantize_groups::Args& rows, std::int64_t tokens) {
  if (!rows.x.present()) return {};
  if (rows.x.shape[0] != tokens || rows.index.present() || rows.row_ends.present())
    return "some of the tokens are quantized";
  if (quantize_groups::has_scale(rows)) return "a scale is of several tokens";
  return rows.zero.present() ? "tokens have zero points" : "";
}

}  // namespace

std::string reject_one_launch(const Args& args, const RouterSpec& spec, const Device& device) {
  const std::int64_t tokens = args.gating.logits.shape[0], all_experts = args.gating.logits.shape[1];
  if (device.failed_variants->contains(source::route_tokens.name)) return "its program does not build on this device";
  if (tokens < 1 || tokens > most_tokens) return fmt::format("{} tokens are not 1 to {}", tokens, most_tokens);
  const expert_sort::Lanes lanes = lanes_for(args.gating, spec, device);
  if (static_cast<std::size_t>(lanes.count) > device.caps.max_work_group_size)
    return fmt::format("{} lanes are more than a work-group of the device has", lanes.count);
  const std::int32_t experts = expert_sort::local_experts(args.sort);
  const std::int32_t words = gating_top_k::team_words(all_experts, spec);
  const std::size_t needed = gating_top_k::local_bytes(words, lanes.count, lanes.teams) + lanes.local_bytes(experts);
  if (needed > device.caps.local_mem_bytes)
    return fmt::format("{} bytes of local memory are needed, the device has {}", needed, device.caps.local_mem_bytes);
  if (expert_sort::scratch_bytes(args.sort.ids.elements(), experts, device.caps) != 0) return "there are many slots";
  return reject_codes(args.tokens, tokens);
}

std::string reject(const Args& args, const RouterSpec& spec, const Device& device) {
  if (std::string reason = gating_top_k::reject(args.gating, spec, {}, device); !reason.empty()) return reason;
  if (args.gating.table.experts.present()) return "gating: a table says the experts, nothing is chosen";
  if (args.sort.ids.buffer.handle != args.gating.ids.buffer.handle ||
      args.sort.ids.offset_elements() != args.gating.ids.offset_elements())
    return "sort: its ids are not those that are chosen";
  if (std::string reason = expert_sort::reject(args.sort, {}, device); !reason.empty()) return reason;
  return args.tokens.x.present() ? quantize_groups::reject(args.tokens, {}, device) : std::string();
}

namespace {

route_tokens_args kernel_args(const Args& args, const RouterSpec& spec) {
  const quantize_groups::Args& rows = args.tokens;
  const bool quantizes = rows.x.present();
  return {.gating = gating_top_k::kernel_args(args.gating, spec),
          .sort = expert_sort::kernel_args(args.sort),
          .x_first = first_element(rows.x),
          .q_first = first_element(rows.q),
          .scale_first = first_element(rows.scale),
          .x_stride = rows.x.stride[0],
          .q_stride = rows.q.stride[0],
          .scale_stride = rows.scale.stride[0],
          .tokens = int_of(args.gating.logits.shape[0]),
          .width = int_of(rows.x.shape[1]),
          .group = quantizes ? int_of(quantize_groups::group_of(rows)) : 0,
          .pad = 0,
          .rules = quantizes ? quantize_groups::rules_of(rows) : quantize_rules{}};
}

/// Of one launch.
void plan_one_launch(Plan& plan, const Args& args, const RouterSpec& spec, const Device& device) {
  const expert_sort::Lanes lanes = lanes_for(args.gating, spec, device);
  const auto local = static_cast<std::size_t>(lanes.count);
  const std::int64_t tokens = args.gating.logits.shape[0];
  const quantize_groups::Args& rows = args.tokens;
  const bool quantizes = rows.x.present();
  std::size_t groups = 1;
  std::string options = lanes.options() + shuffle_option(lanes.count, device.caps) + " -DQUANTIZES=0",
              shape = fmt::format("{} top {}", args.gating.logits.describe(), spec.top_k);
  if (quantizes) {
    const quantize_groups::Lanes of_rows(lanes.count, lanes.count / lanes.teams, device.caps);
    options = "-DQUANTIZES=1 " + quantize_groups::options(rows, of_rows, device.caps);
    groups += static_cast<std::size_t>((tokens * quantize_groups::groups_of(rows) - 1) / lanes.teams + 1);
    shape += fmt::format(", codes of {}", rows.x.describe());
  }
  plan.one_launch = {lanes.count == 1 ? "one_item" : "token_per_team",
                     options + gating_top_k::options(args.gating),
                     {groups * local, 1, 1},
                     {local, 1, 1},
                     shape,
                     cost(args)};
  plan.teams = lanes.teams;
  plan.counter_bytes = lanes.counter_bytes(expert_sort::local_experts(args.sort));
}

}  // namespace

Plan plan(const Args& args, const RouterSpec& spec, const Device& device) {
  const std::string reason = reject(args, spec, device);
  require(reason.empty(), "route_tokens: {}", reason);
  Plan plan;
  if (const std::string why = reject_one_launch(args, spec, device); !why.empty()) {
    plan.why_several_launches = "route_tokens in several launches: " + why;
    plan.gating = gating_top_k::plan(args.gating, spec, {}, device);
    plan.sort = expert_sort::plan(args.sort, {}, device);
    if (args.tokens.x.present()) plan.tokens = quantize_groups::plan(args.tokens, {}, device);
  } else {
    plan_one_launch(plan, args, spec, device);
  }
  return plan;
}

void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit) {
  const gating_top_k::Args& gating = args.gating;
  const expert_sort::Args& sort = args.sort;
  const quantize_groups::Args& rows = args.tokens;
  if (!plan.why_several_launches.empty()) {
    const Trace::Span span(stream.trace, plan.why_several_launches);
    gating_top_k::enqueue(stream, plan.gating, gating, spec, {submit.wait, nullptr});
    if (rows.x.present()) quantize_groups::enqueue(stream, plan.tokens, rows);
    return expert_sort::enqueue(stream, plan.sort, sort, {{}, submit.done});
  }
  const route_tokens_args given = kernel_args(args, spec);
  const LocalMemory words = gating_top_k::words_memory(given.gating.team_words, plan.teams),
                    counters{plan.counter_bytes};
  note_failure(stream, source::route_tokens.name, [&] {
    if (rows.x.present())
      launch_planned(stream, source::route_tokens, "route_tokens", plan.one_launch, submit, gating.logits,
                     gating.selection_bias, gating.finished, gating.ids, gating.weights, gating.scores, sort.order,
                     sort.row_ends, sort.counts, sort.sorted_slots, sort.slot_rows, sort.fault, rows.x, rows.q,
                     rows.scale, words, counters, given);
    else
      launch_planned(stream, source::route_tokens, "route_tokens", plan.one_launch, submit, gating.logits,
                     gating.selection_bias, gating.finished, gating.ids, gating.weights, gating.scores, sort.order,
                     sort.row_ends, sort.counts, sort.sorted_slots, sort.slot_rows, sort.fault, words, counters, given);
  });
}

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit) {
  with_next_variant(stream, [&] { enqueue(stream, plan(args, spec, *stream.device), args, spec, submit); });
}

OperatorCost cost(const Args& args) {
  OperatorCost all = gating_top_k::cost(args.gating);
  for (const OperatorCost& step :
       {expert_sort::cost(args.sort), args.tokens.x.present() ? quantize_groups::cost(args.tokens) : OperatorCost()}) {
    all.bytes += step.bytes;
    all.flops += step.flops;
  }
  return all;
}

}  // namespace moecl::route_tokens
