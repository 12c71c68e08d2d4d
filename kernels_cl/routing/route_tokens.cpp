#include <moecl/route_tokens.hpp>

#include <bit>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/quantize/quantize_args.hpp"
#include "kernels_cl/routing/gating_args.hpp"
#include "kernels_cl/routing/route_tokens_args.h"
#include "kernels_cl/routing/sort_args.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource route_tokens;
}

namespace moecl::route_tokens {
namespace {

constexpr std::int64_t most_tokens = 16;

/// On a GPU a team for each token, of as many lanes as gating_top_k has.
expert_sort::Lanes lanes_for(const gating_top_k::Args& gating, const RouterSpec& spec, const DeviceCaps& caps) {
  if (caps.type == DeviceType::cpu) return {1};
  const auto teams = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint64_t>(gating.logits.shape[0])));
  return {gating_top_k::token_lanes(gating.logits.shape[1], spec, {}, caps) * teams, teams};
}

std::string why_apart(const quantize_groups::Args& rows, std::int64_t tokens) {
  if (!rows.x.present()) return {};
  if (rows.x.shape[0] != tokens || rows.index.present() || rows.row_ends.present())
    return "some of the tokens are quantized";
  if (quantize_groups::has_scale(rows)) return "a scale is of several tokens";
  return rows.zero.present() ? "tokens have zero points" : "";
}

}  // namespace

std::string why_apart(const Args& args, const RouterSpec& spec, const DeviceCaps& caps) {
  const std::int64_t tokens = args.gating.logits.shape[0], all_experts = args.gating.logits.shape[1];
  if (caps.failed_variants->contains(source::route_tokens.name)) return "its program does not build on this device";
  if (tokens < 1 || tokens > most_tokens) return fmt::format("{} tokens are not 1 to {}", tokens, most_tokens);
  const expert_sort::Lanes lanes = lanes_for(args.gating, spec, caps);
  if (static_cast<std::size_t>(lanes.count) > caps.max_work_group_size)
    return fmt::format("{} lanes are more than a work-group of the device has", lanes.count);
  const std::int32_t experts = expert_sort::local_experts(args.sort);
  const std::int32_t words = gating_top_k::team_words(all_experts, spec);
  const std::size_t needed = gating_top_k::local_bytes(words, lanes.count, lanes.teams) + lanes.local_bytes(experts);
  if (needed > caps.local_mem_bytes)
    return fmt::format("{} bytes of local memory are needed, the device has {}", needed, caps.local_mem_bytes);
  if (expert_sort::scratch_bytes(args.sort.ids.elements(), experts, caps) != 0) return "there are many slots";
  return why_apart(args.tokens, tokens);
}

std::string reject(const Args& args, const RouterSpec& spec, const DeviceCaps& caps) {
  if (std::string reason = gating_top_k::reject(args.gating, spec, {}, caps); !reason.empty()) return reason;
  if (args.sort.ids.buffer.handle != args.gating.ids.buffer.handle ||
      args.sort.ids.offset_elements() != args.gating.ids.offset_elements())
    return "sort: its ids are not those that are chosen";
  if (std::string reason = expert_sort::reject(args.sort, {}, caps); !reason.empty()) return reason;
  return args.tokens.x.present() ? quantize_groups::reject(args.tokens, {}, caps) : std::string();
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

void enqueue_chosen(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit) {
  const DeviceCaps& caps = stream.device->caps;
  const std::string reason = reject(args, spec, caps);
  require(reason.empty(), "route_tokens: {}", reason);
  if (const std::string apart = why_apart(args, spec, caps); !apart.empty()) {
    const Trace::Span span(stream.trace, "route_tokens in several launches: " + apart);
    gating_top_k::enqueue(stream, args.gating, spec, {}, {submit.wait, nullptr});
    if (args.tokens.x.present()) quantize_groups::enqueue(stream, args.tokens);
    return expert_sort::enqueue(stream, args.sort, {}, {{}, submit.done});
  }
  const expert_sort::Lanes lanes = lanes_for(args.gating, spec, caps);
  const auto local = static_cast<std::size_t>(lanes.count);
  const OperatorCost work = cost(args);
  const auto run = [&](const std::string& options, std::int64_t groups, const auto&... operands) {
    note_failure(stream, source::route_tokens.name, [&] {
      launch(stream, {&source::route_tokens, options + gating_top_k::options(args.gating), "route_tokens"},
             {{static_cast<std::size_t>(groups) * local, 1, 1}, {local, 1, 1}}, submit,
             {"route_tokens", lanes.count == 1 ? "one_item" : "token_per_team",
              fmt::format("{} top {}{}", args.gating.logits.describe(), spec.top_k,
                          args.tokens.x.present() ? fmt::format(", codes of {}", args.tokens.x.describe()) : ""),
              work.bytes, work.flops},
             operands...);
    });
  };
  const gating_top_k::Args& gating = args.gating;
  const expert_sort::Args& sort = args.sort;
  const quantize_groups::Args& rows = args.tokens;
  const route_tokens_args given = kernel_args(args, spec);
  const LocalMemory words = gating_top_k::words_memory(given.gating.team_words, lanes.teams),
                    counters = lanes.counters_memory(given.sort.experts);
  if (!rows.x.present())
    return run(lanes.options() + shuffle_option(lanes.count, caps) + " -DQUANTIZES=0", 1, gating.logits,
               gating.selection_bias, gating.finished, gating.ids, gating.weights, gating.scores, sort.order,
               sort.row_ends, sort.counts, sort.sorted_slots, sort.slot_rows, sort.fault, words, counters, given);
  const quantize_groups::Lanes shape(lanes.count, lanes.count / lanes.teams, caps);
  run("-DQUANTIZES=1 " + quantize_groups::options(rows, shape, caps),
      1 + (given.tokens * quantize_groups::groups_of(rows) - 1) / lanes.teams + 1, gating.logits, gating.selection_bias,
      gating.finished, gating.ids, gating.weights, gating.scores, sort.order, sort.row_ends, sort.counts,
      sort.sorted_slots, sort.slot_rows, sort.fault, rows.x, rows.q, rows.scale, words, counters, given);
}

}  // namespace

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit) {
  with_next_variant(stream, [&] { enqueue_chosen(stream, args, spec, submit); });
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
