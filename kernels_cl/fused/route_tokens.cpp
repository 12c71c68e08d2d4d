#include <moecl/route_tokens.hpp>

#include <algorithm>
#include <bit>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/fused/grid_barrier.hpp"
#include "kernels_cl/fused/route_tokens_args.h"
#include "kernels_cl/fused/router.hpp"
#include "kernels_cl/quantize/quantize_groups.hpp"
#include "kernels_cl/routing/expert_sort.hpp"
#include "kernels_cl/routing/gating_top_k.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource route_tokens;
}

namespace moecl::route_tokens {
namespace {

/// How a launch chooses and sorts: the options of its kernel say more.
enum class Way {
  one_group,  ///< one work-group does all of it
  routed,     ///< choosers take tokens in turn, whose logits helpers compute; the first chooser sorts
  chunks,     ///< each chooser has a chunk of the tokens
};

constexpr std::int32_t chunk_lanes = 512;  ///< of a chooser with a chunk
constexpr std::int64_t most_tokens_of(Way way) { return way == Way::one_group ? 16 : way == Way::routed ? 64 : 4096; }

/// Work-groups can wait for each other by stamps of PTX's memory model.
bool groups_can_wait(const DeviceCaps& caps) { return caps.nv_compute_capability >= 70; }

/// How tokens are routed whose logits are there.
Way way_from_logits(const Args& args, const DeviceCaps& caps) {
  const bool few = args.gating.logits.shape[0] <= most_tokens_of(Way::one_group);
  return few || !groups_can_wait(caps) ? Way::one_group : Way::chunks;
}

bool routes(const Args& args) { return args.router.a.present(); }
bool quantizes(const Args& args) { return args.tokens.x.present(); }

/// On a GPU a team has as many lanes as in gating_top_k. One work-group has a team per token.
expert_sort::Lanes lanes_for(const Args& args, const RouterSpec& spec, const Device& device, Way way) {
  if (device.caps.type == DeviceType::cpu) return {1};
  const TensorView& logits = args.gating.logits;
  const std::int32_t team = gating_top_k::token_lanes(logits.shape[1], spec, {}, device);
  if (way != Way::one_group) {
    const std::int32_t lanes = std::max(way == Way::routed ? router::lanes : chunk_lanes, team);
    return {lanes, lanes / team};
  }
  const auto teams = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint64_t>(logits.shape[0])));
  return {team * teams, teams};
}

std::string reject_codes(const quantize_groups::Args& rows, std::int64_t tokens) {
  if (rows.x.shape[0] != tokens || rows.index.present() || rows.row_ends.present())
    return "some of the tokens are quantized";
  if (quantize_groups::has_scale(rows)) return "a scale is of several tokens";
  return rows.zero.present() ? "tokens have zero points" : "";
}

/// Whether a token may have an expert twice. No expert is chosen twice, but a finished token has one id in all slots.
bool has_expert_twice(const Args& args) {
  const std::optional<std::int32_t>& id = args.gating.finished_id;
  return args.gating.finished.present() && id && *id >= args.sort.first_expert && *id < args.sort.end_expert;
}

/// How a launch is divided: lanes, teams, local memory and work-groups.
struct Shape {
  Way way;
  bool quantizes;  ///< the launch also makes the codes of few tokens; those of many keep all compute units busy
  expert_sort::Lanes lanes;
  bool few_tokens;  ///< the sort is sort_few_tokens, of little code
  std::uint64_t sums_bytes = 0, counter_bytes, local_bytes;
  std::int32_t team_words;
  std::int64_t chunk_tokens = 0;  ///< of a chooser with a chunk: a token for each team, some rounds of them
  std::int64_t choosers = 1;      ///< work-groups that choose
  std::int64_t helpers = 0;       ///< work-groups that help them

  Shape(const Args& args, const RouterSpec& spec, const Device& device, Way how)
      : way(how),
        quantizes(route_tokens::quantizes(args) && how != Way::chunks),
        lanes(lanes_for(args, spec, device, how)),
        few_tokens(way != Way::chunks && lanes.count > 1 && !args.sort.order.present() && !has_expert_twice(args)),
        team_words(gating_top_k::team_words(args.gating.logits.shape[1], spec)) {
    const std::int64_t tokens = args.gating.logits.shape[0], experts = args.gating.logits.shape[1];
    if (way == Way::routed) sums_bytes = std::max(router::sums_bytes(tokens), router::added_bytes(experts));
    const std::int32_t sorted = expert_sort::local_experts(args.sort);
    counter_bytes =
        few_tokens ? 3 * static_cast<std::uint64_t>(sorted) * sizeof(std::int32_t) : lanes.counter_bytes(sorted);
    local_bytes = sums_bytes + gating_top_k::local_bytes(team_words, lanes.count, lanes.teams) + counter_bytes +
                  lanes.local_bytes(0);
    divide(args, device.caps.compute_units);
  }

 private:
  /// Choosers wait on compute units. Those of chunks wait for each other, so all of them must be resident together.
  /// Those that wait for helpers leave room for them.
  void divide(const Args& args, std::int64_t units) {
    const std::int64_t tokens = args.gating.logits.shape[0];
    if (way == Way::routed) {
      const PackedWeights& router = args.router.weights;
      choosers = std::min(tokens, std::max<std::int64_t>(units / 2, 1));
      helpers = router::parts(tokens, router.n, router.k);
    } else if (way == Way::chunks) {
      chunk_tokens = quotient_up(quotient_up(tokens, lanes.teams), units) * lanes.teams;
      choosers = quotient_up(tokens, chunk_tokens);
    }
    if (quantizes) helpers += quotient_up(tokens * quantize_groups::groups_of(args.tokens), lanes.teams);
  }
};

/// Layout of the scratch: parts of the logits or the table of chunks, then the stamps of helpers and of choosers.
struct Scratch {
  std::uint64_t first_bytes, words_bytes;

  Scratch(const Args& args, const Shape& shape) {
    const PackedWeights& router = args.router.weights;
    const std::int64_t entries = shape.choosers * (expert_sort::local_experts(args.sort) + 1);
    const std::uint64_t bytes = shape.way == Way::routed
                                    ? router::parts_bytes(args.router.a.shape[0], router.n, router.k)
                                    : static_cast<std::uint64_t>(entries) * sizeof(std::int32_t);
    first_bytes = (bytes + 15) / 16 * 16;
    words_bytes = static_cast<std::uint64_t>(shape.helpers + shape.choosers + 2) * sizeof(std::uint64_t);
  }
  std::string reject(const BufferView& memory) const {
    if (memory.size_bytes >= first_bytes + words_bytes && memory.offset_bytes % 16 == 0) return {};
    return fmt::format("scratch: {} bytes are needed from a multiple of 16, got {} at {}", first_bytes + words_bytes,
                       memory.size_bytes, memory.offset_bytes);
  }
};

std::string reject_one_launch(const Args& args, const Shape& shape, const Device& device) {
  const std::int64_t tokens = args.gating.logits.shape[0], most_here = most_tokens_of(shape.way);
  if (device.failed_variants->contains(source::route_tokens.name)) return "its program does not build on this device";
  if (tokens < 1 || tokens > most_here) return fmt::format("{} tokens are not 1 to {}", tokens, most_here);
  if (static_cast<std::size_t>(shape.lanes.count) > device.caps.max_work_group_size)
    return fmt::format("{} lanes are more than a work-group of the device has", shape.lanes.count);
  const std::uint64_t most =
      shape.way == Way::routed ? device.caps.static_local_mem_bytes : std::uint64_t{device.caps.local_mem_bytes};
  if (shape.local_bytes > most)
    return fmt::format("{} bytes of local memory are needed, the device has {}", shape.local_bytes, most);
  if (shape.way == Way::chunks) {
    if (args.concurrent) return "other kernels may run at the same time";
    if (args.sort.order.present()) return "slots are sorted in a given order";
    if (args.sort.rows_per_expert != 0) return "the layout is batched";
  } else if (expert_sort::scratch_bytes(args.sort.ids.elements(), expert_sort::local_experts(args.sort), device.caps) !=
             0) {
    return "there are many slots";
  }
  if (shape.way != Way::one_group)
    if (std::string reason = Scratch(args, shape).reject(args.scratch); !reason.empty()) return reason;
  return shape.quantizes ? reject_codes(args.tokens, tokens) : std::string();
}

/// Why the router needs a launch of its own; empty when it does not.
std::string reject_router(const Args& args, const RouterSpec& spec, const Device& device) {
  if (!groups_can_wait(device.caps)) return "the device is no NVIDIA GPU of compute capability 7.0";
  if (device.caps.compute_units < 2) return "the waiting work-group would take the only compute unit";
  if (const std::int32_t team = gating_top_k::token_lanes(args.gating.logits.shape[1], spec, {}, device);
      team > router::lanes)
    return fmt::format("the choice takes {} lanes for a token, the router's product {}", team, router::lanes);
  if (std::string reason = router::reject(args.router); !reason.empty()) return reason;
  if (quantizes(args) && args.tokens.x.dtype != args.router.a.dtype) return "router and experts have other tokens";
  return reject_one_launch(args, Shape(args, spec, device, Way::routed), device);
}

}  // namespace

std::string reject_one_launch(const Args& args, const RouterSpec& spec, const Device& device) {
  return reject_one_launch(args, Shape(args, spec, device, way_from_logits(args, device.caps)), device);
}

std::string reject(const Args& args, const RouterSpec& spec, const Device& device) {
  if (std::string reason = gating_top_k::reject(args.gating, spec, {}, device); !reason.empty()) return reason;
  if (args.gating.table.experts.present()) return "gating: a table says the experts, nothing is chosen";
  if (!grouped_gemm::is_same(args.sort.ids, args.gating.ids)) return "sort: its ids are not those that are chosen";
  if (std::string reason = expert_sort::reject(args.sort, {}, device); !reason.empty()) return reason;
  if (routes(args)) {
    if (!grouped_gemm::is_same(args.router.out, args.gating.logits)) return "router: its rows are not the logits";
    if (std::string reason = grouped_gemm::reject(args.router, {}, device); !reason.empty()) return "router: " + reason;
  }
  return quantizes(args) ? quantize_groups::reject(args.tokens, {}, device) : std::string();
}

namespace {

/// All but what goes with the scratch, which `enqueue` adds.
route_tokens_args kernel_args(const Args& args, const RouterSpec& spec, const Plan& plan) {
  const quantize_groups::Args& rows = args.tokens;
  return {.gating = gating_top_k::kernel_args(args.gating, spec),
          .sort = expert_sort::kernel_args(args.sort),
          .router = {},
          .grid = {},
          .x_first = first_element(rows.x),
          .q_first = first_element(rows.q),
          .scale_first = first_element(rows.scale),
          .x_stride = rows.x.stride[0],
          .q_stride = rows.q.stride[0],
          .scale_stride = rows.scale.stride[0],
          .tokens = int_of(args.gating.logits.shape[0]),
          .width = int_of(rows.x.shape[1]),
          .choosers = int_of(plan.choosers),
          .pad = 0,
          .rules = quantizes(args) ? quantize_groups::rules_of(rows) : quantize_rules{}};
}

/// What a launch costs that chooses and sorts, with or without the router's product and the codes.
OperatorCost cost_of(const Args& args, bool routed, bool quantized) {
  OperatorCost all = gating_top_k::cost(args.gating);
  for (const OperatorCost& step :
       {expert_sort::cost(args.sort), quantized ? quantize_groups::cost(args.tokens) : OperatorCost(),
        routed ? grouped_gemm::cost(args.router) : OperatorCost()}) {
    all.bytes += step.bytes;
    all.flops += step.flops;
  }
  return all;
}

void plan_one_launch(Plan& plan, const Args& args, const RouterSpec& spec, const Shape& shape, const DeviceCaps& caps) {
  const expert_sort::Lanes& lanes = shape.lanes;
  const auto local = static_cast<std::size_t>(lanes.count);
  const bool routed = shape.way == Way::routed, chunks = shape.way == Way::chunks;
  std::string options = fmt::format("-DROUTES={:d} -DCHUNKS={:d} -DQUANTIZES={:d} -DFEW_TOKENS={:d}", routed, chunks,
                                    shape.quantizes, shape.few_tokens),
              what = args.gating.logits.describe() + fmt::format(" top {}", args.gating.ids.shape[1]);
  if (routed || chunks) options += " -DGPU_SCOPE=1";
  if (routed) {
    options +=
        fmt::format(" -DTOKEN_BLOCK={} -DSUMS_BYTES={}", router::token_block(args.router.a.shape[0]), shape.sums_bytes);
    what = args.router.a.describe() + " to " + what;
  }
  if (shape.quantizes) {
    const quantize_groups::Lanes of_rows(lanes.count, lanes.count / lanes.teams, caps);
    options += fmt::format(" -DA_GROUP={} ", args.tokens.group) + quantize_groups::options(args.tokens, of_rows, caps);
    what += fmt::format(", codes of {}", args.tokens.x.describe());
  } else {
    options += " " + lanes.options() + shuffle_option(lanes.count, caps);
    if (routed) options += dtype_option("X_DTYPE", args.router.a);
  }
  if (lanes.count > 1) options += gating_top_k::rule_options(args.gating, spec, lanes.count / lanes.teams, caps);
  plan.choosers = shape.choosers;
  plan.chunk_tokens = shape.chunk_tokens;
  if (shape.way != Way::one_group) {
    const Scratch scratch(args, shape);
    plan.first_bytes = scratch.first_bytes, plan.words_bytes = scratch.words_bytes;
  }
  plan.one_launch = {lanes.count == 1 ? "one_item"
                     : routed         ? "token_per_group"
                     : chunks         ? "chunk_per_group"
                                      : "token_per_team",
                     options + gating_top_k::options(args.gating),
                     {static_cast<std::size_t>(shape.choosers + shape.helpers) * local, 1, 1},
                     {local, 1, 1},
                     what,
                     cost_of(args, routed, shape.quantizes)};
  plan.teams = lanes.teams;
  plan.counter_bytes = shape.counter_bytes;
}

}  // namespace

Plan plan(const Args& args, const RouterSpec& spec, const Device& device) {
  const std::string reason = reject(args, spec, device);
  require(reason.empty(), "route_tokens: {}", reason);
  Plan plan;
  if (routes(args)) {
    plan.why_router_alone = reject_router(args, spec, device);
    if (plan.why_router_alone.empty()) {
      plan_one_launch(plan, args, spec, Shape(args, spec, device, Way::routed), device.caps);
      return plan;
    }
    plan.why_router_alone = "router in a launch of its own: " + plan.why_router_alone;
    plan.router = grouped_gemm::plan(args.router, {}, device);
  }
  const Shape shape(args, spec, device, way_from_logits(args, device.caps));
  if (const std::string why = reject_one_launch(args, shape, device); !why.empty()) {
    plan.why_several_launches = "route_tokens in several launches: " + why;
    plan.gating = gating_top_k::plan(args.gating, spec, {}, device);
    plan.sort = expert_sort::plan(args.sort, {}, device);
  } else {
    plan_one_launch(plan, args, spec, shape, device.caps);
  }
  plan.codes_alone = quantizes(args) && (!plan.why_several_launches.empty() || !shape.quantizes);
  if (plan.codes_alone) plan.tokens = quantize_groups::plan(args.tokens, {}, device);
  return plan;
}

namespace {

void enqueue_several(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit) {
  const Trace::Span span(stream.trace, plan.why_several_launches);
  gating_top_k::enqueue(stream, plan.gating, args.gating, spec, {submit.wait, nullptr});
  expert_sort::enqueue(stream, plan.sort, args.sort, {{}, submit.done});
}

}  // namespace

void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit) {
  const bool alone = !plan.why_router_alone.empty();
  if (alone) {
    const Trace::Span span(stream.trace, plan.why_router_alone);
    grouped_gemm::enqueue(stream, plan.router, args.router, {submit.wait, nullptr});
    submit.wait = {};
  }
  if (plan.codes_alone) {
    quantize_groups::enqueue(stream, plan.tokens, args.tokens, {submit.wait, nullptr});
    submit.wait = {};
  }
  if (!plan.why_several_launches.empty()) return enqueue_several(stream, plan, args, spec, submit);
  const gating_top_k::Args& gating = args.gating;
  const expert_sort::Args& sort = args.sort;
  const quantize_groups::Args& rows = args.tokens;
  route_tokens_args given = kernel_args(args, spec, plan);
  TensorView router_x, router_weights, router_bias, parts, table, group_words;
  if (plan.words_bytes != 0) {
    const auto part = [&](std::uint64_t begin, std::uint64_t bytes, DType dtype) {
      return TensorView(args.scratch.slice(begin, bytes), dtype,
                        {static_cast<std::int64_t>(bytes / size_bytes(dtype))});
    };
    group_words = part(plan.first_bytes, plan.words_bytes, DType::i64);
    given.grid = next_grid_barrier(group_words, plan.patience);
    if (plan.chunk_tokens != 0) {
      table = part(0, plan.first_bytes, DType::i32);
      given.sort.table_first = first_element(table);
      given.sort.chunk_slots = int_of(plan.chunk_tokens * gating.ids.shape[1]);
    } else {
      router_x = args.router.a, router_weights = args.router.weights.view(), router_bias = args.router.bias;
      parts = part(0, plan.first_bytes, DType::f32);
      given.router = router::kernel_args(args.router);
      given.router.parts_first = first_element(parts);
    }
  }
  const LocalMemory words = gating_top_k::words_memory(given.gating.team_words, plan.teams),
                    counters{plan.counter_bytes};
  note_failure(stream, source::route_tokens.name, [&] {
    launch_planned(stream, source::route_tokens, "route_tokens", plan.one_launch, submit, router_x, router_weights,
                   router_bias, parts, table, group_words, gating.logits, gating.selection_bias, gating.finished,
                   gating.ids, gating.weights, gating.scores, sort.order, sort.row_ends, sort.counts, sort.sorted_slots,
                   sort.slot_rows, sort.fault, rows.x, rows.q, rows.scale, words, counters, given);
  });
}

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, Submit submit) {
  with_next_variant(stream, [&] { enqueue(stream, plan(args, spec, *stream.device), args, spec, submit); });
}

OperatorCost cost(const Args& args) { return cost_of(args, routes(args), quantizes(args)); }

}  // namespace moecl::route_tokens
