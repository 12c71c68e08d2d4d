#include <moecl/combine.hpp>
#include <moecl/const_experts.hpp>
#include <moecl/expert_routes.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/quantize_rows.hpp>
#include <moecl/scatter_add.hpp>
#include <moecl/window_slots.hpp>

#include <limits>

#include "host/npu/describe_distribute.hpp"
#include "host/npu/distribute.hpp"

namespace moecl::npu {
namespace {

template <class Args>
constexpr bool is_v2 = std::is_same_v<Args, MoeDistributeCombineV2Args>;

template <class Args>
void infer_combine(Args& args) {
  const Distribution d = distribution_of(args);
  require(args.expand_x.shape[0] == d.expand_rows(), "expand_x: expected [{}, H] for these parameters, got {}",
          d.expand_rows(), args.expand_x);
  require(args.comm_quant_mode == 0 || (args.comm_quant_mode >= 2 && args.comm_quant_mode <= 4),
          "comm_quant_mode: {} is none of 0, 2, 3 and 4", args.comm_quant_mode);
  if (args.comm_quant_mode == 2 && d.dtype == DType::f32)
    fail(ErrorCode::unsupported, "comm_quant_mode: 2 goes with f16 and bf16 rows");
  require(args.comm_quant_mode != 2 || d.hidden % 8 == 0, "comm_quant_mode: 2 needs H in eights, got {}", d.hidden);
  set_shape(args.out, args.expand_x.dtype, {d.tokens, d.hidden});
}

/// How the rows that this rank computed return to the ranks of their tokens.
struct Returning {
  TensorView to_send;      ///< the row at each place of the send window. Shape: [ranks * capacity] i32
  TensorView source_ends;  ///< rows for each destination rank, cumulative. Shape: [ranks] i32
  SortedIds home;          ///< this rank's own slots, sorted by owner
  expert_routes::Args routes;
};

template <class Args>
Returning compose_routes(Steps& steps, const Args& args, const Distribution& d) {
  Returning r;
  const TensorView sources = steps.scratch(DType::i32, {d.expand_rows()});
  expect_tensor(args.ep_send_counts, "ep_send_counts", DType::i32, {d.local_experts() * d.ranks});
  steps.run(index_vectors::GroupOfRow{args.ep_send_counts, d.ranks, sources});
  const SortedIds by_source = sort_ids(steps, as_column(sources), d.ranks);
  r.source_ends = by_source.row_ends;
  r.to_send = steps.scratch(DType::i32, {d.window_rows()});
  steps.run(window_slots::Outgoing{by_source.row_ends, by_source.sorted_slots, d.ranks, r.to_send});

  r.routes.expert_ids = args.expert_ids;
  r.routes.weights = args.expert_scales;
  r.routes.experts = d.experts;
  r.routes.shared_experts = d.shared_experts;
  r.routes.shared_ranks = d.shared_ranks;
  r.routes.rank = d.rank;
  r.routes.owners = steps.scratch(DType::i32, {d.tokens, d.columns()});
  r.routes.row_weights = steps.scratch(DType::f32, {d.tokens, d.columns()});
  r.routes.fault = steps.fault();
  if constexpr (is_v2<Args>) {
    r.routes.mask = args.x_active_mask;
    r.routes.zero_experts = d.zero_experts;
    r.routes.copy_experts = d.copy_experts;
    r.routes.const_experts = d.const_experts;
    if (args.x_active_mask.present()) r.routes.active = steps.scratch(DType::i32, {d.tokens});
    if (d.copy_experts + d.const_experts != 0)
      r.routes.special_rows = steps.scratch(DType::i32, {d.tokens, d.columns()});
  }
  steps.run(r.routes);
  r.home = sort_ids(steps, r.routes.owners, d.owners());
  return r;
}

/// The exchange that brings back the rows of this rank's tokens. The sort of its own slots counts them.
SlabExchange homewards(const Distribution& d, const Returning& r) {
  SlabExchange how{d.capacity(), reshaped(r.home.row_ends, {1, d.owners()}), {}};
  for (std::int32_t from = 0; from < d.ranks; ++from)
    how.slabs.push_back({from, d.rank, from, 0, d.first_owner(from), d.first_owner(from + 1)});
  return how;
}

/// Strict mode: compares dispatch's row information with this call's ids and mask.
void compose_check(Steps& steps, const MoeDistributeCombineV2Args& args, const Distribution& d, const Returning& r,
                   Communicator* ranks) {
  expect_tensor(args.assist_info_for_combine, "assist_info_for_combine", DType::i32, {-1});
  if (!steps.strict()) return;
  const TensorView source_slots = steps.scratch(DType::i32, {d.window_rows()}),
                   expected = steps.scratch(DType::i32, {d.window_rows()});
  const TensorView told = window_like(steps, source_slots);
  if (!steps.fault().present()) return;
  steps.run(window_slots::SourceSlots{r.to_send, args.assist_info_for_combine, d.ranks, d.columns(), source_slots});
  steps.run(window_slots::Outgoing{r.home.row_ends, r.home.sorted_slots, d.ranks, expected, d.shared_ranks});
  steps.fill(told, 0xFFFFFFFFU);
  SlabExchange how = homewards(d, r);
  how.one_more = true;  // the extra entry must be -1
  exchange_slabs(ranks, how, {{source_slots, told}});
  steps.run(index_vectors::Expect{told, expected, steps.fault()});
}
void compose_check(Steps& steps, const MoeDistributeCombineArgs& args, const Distribution& d, const Returning& r,
                   Communicator* /*ranks*/) {
  expect_tensor(args.expand_idx, "expand_idx", DType::i32, {d.tokens * d.top_k});
  if (!steps.strict()) return;
  const TensorView positions = steps.scratch(DType::i32, {d.tokens, d.top_k});
  steps.run(window_slots::PositionsInExpert{r.home.row_ends, r.home.slot_rows, d.columns(), positions});
  if (steps.fault().present())
    steps.run(index_vectors::Expect{args.expand_idx, reshaped(positions, {d.tokens * d.top_k}), steps.fault()});
}

/// Makes the rows of copy and constant experts. combine adds them to the rows of their slots as a bias.
void compose_special(Steps& steps, const MoeDistributeCombineV2Args& args, const Distribution& d, const Returning& r,
                     combine::Args& sum) {
  if (d.copy_experts + d.const_experts == 0) return;
  expect_tensor(args.ori_x, "ori_x", d.dtype, {d.tokens, d.hidden});
  sum.bias = args.ori_x;
  sum.bias_ids = r.routes.special_rows;
  if (d.const_experts == 0) return;
  expect_tensor(args.const_expert_v, "const_expert_v", d.dtype, {d.const_experts, d.hidden});
  sum.bias = steps.scratch(DType::f32, {(1 + d.const_experts) * d.tokens, d.hidden});
  steps.run(const_experts::Args{args.ori_x, args.const_expert_alpha_1, args.const_expert_alpha_2, args.const_expert_v,
                                sum.bias});
}

/// Makes the rows to send, as comm_quant_mode says.
/// @param index  which rows; absent: all
/// @return  i8 with `scales`, or new rows of type `plain`: MX codes are sent as the numbers that they stand for
TensorView wire_rows(Steps& steps, std::int64_t comm_quant_mode, const TensorView& rows, const TensorView& index,
                     DType plain, TensorView& scales) {
  const std::int64_t count = index.present() ? index.shape[0] : rows.shape[0], hidden = rows.shape[1];
  if (comm_quant_mode == 2) {
    const TensorView send = steps.scratch(DType::i8, {count, hidden});
    scales = steps.scratch(plain, {count, hidden / 8});
    quantize_rows::Args quantize{rows, {}, 0, send, scales, quantize_rows::Rounding::divide_scaled_f16};
    quantize.index = index;
    quantize.group = 8;
    steps.run(quantize);
    return send;
  }
  const TensorView send = steps.scratch(plain, {count, hidden});
  if (comm_quant_mode == 0) {
    steps.run(gather_rows::Args{rows, index, 1, {}, 0, send});
    return send;
  }
  quantize_groups::Args blocks;
  blocks.x = rows;
  blocks.format = comm_quant_mode == 3 ? CodeType::f8_e5m2 : CodeType::f8_e4m3;
  blocks.group = 32;
  blocks.rule = quantize_groups::ScaleRule::mx_floor;
  blocks.q = send;
  blocks.index = index;
  steps.run(blocks);
  return send;
}

/// Exchanges rows and their scales; what arrives becomes the rows that `sum` adds.
void exchange_wire(Steps& steps, Communicator* ranks, const SlabExchange& how, const TensorView& rows,
                   const TensorView& scales, combine::Args& sum) {
  sum.rows = window_like(steps, rows);
  std::vector<Piece> pieces = {{rows, sum.rows}};
  if (scales.present()) {
    sum.rows_scale = window_like(steps, scales);
    pieces.push_back({scales, sum.rows_scale});
  }
  exchange_slabs(ranks, how, pieces);
}

/// Every row returns to its token's rank by itself.
template <class Args>
void compose_fullmesh(Steps& steps, const Args& args, const Distribution& d, const Returning& r, Communicator* ranks,
                      combine::Args& sum) {
  sum.slot_rows = steps.scratch(DType::i32, {d.tokens * d.columns()});
  steps.run(window_slots::ReturnRows{r.home.row_ends, r.home.slot_rows, d.ranks, d.capacity(), sum.slot_rows,
                                     d.shared_ranks});
  sum.weights = r.routes.row_weights;
  TensorView scales;
  const TensorView send = wire_rows(steps, args.comm_quant_mode, args.expand_x, r.to_send, d.dtype, scales);
  exchange_wire(steps, ranks, homewards(d, r), send, scales, sum);
  if constexpr (is_v2<Args>) compose_special(steps, args, d, r, sum);
}

/// Each row goes to the rank of this server that has the index of the row's home rank. That rank makes the weighted
/// sums of the tokens that have rows here, and sends them to the home rank.
void compose_hierarchy(Steps& steps, const MoeDistributeCombineV2Args& args, const Distribution& d, const Returning& r,
                       Communicator* ranks, combine::Args& sum) {
  Servers servers(d, ranks);
  const std::int32_t count = servers.count;
  const std::int64_t window = d.window_rows(), partial_rows = count * d.most_tokens;
  const TensorView send = steps.scratch(d.dtype, {window, d.hidden}), weights = steps.scratch(DType::f32, {window}),
                   tokens = steps.scratch(DType::i32, {window});
  expect_tensor(args.expand_scales, "expand_scales", DType::f32, {d.expand_rows()});
  steps.run(gather_rows::Args{args.expand_x, r.to_send, 1, {}, 0, send});
  steps.run(gather_rows::Args{as_column(args.expand_scales), r.to_send, 1, {}, 0, as_column(weights)});
  steps.run(window_slots::DestinationTokens{r.to_send, args.assist_info_for_combine, d.ranks, servers.each,
                                            d.most_tokens, tokens});
  SlabExchange in_server{
      d.capacity(), gather_lists(steps, servers.in_server(), servers.each, {r.source_ends}).front(), {}};
  for (std::int32_t from = 0; from < servers.each; ++from)
    for (std::int32_t server = 0; server < count; ++server) {
      const std::int32_t home = server * servers.each + servers.index;
      in_server.slabs.push_back({from, home, server * servers.each + from, from, home, home + 1});
    }
  scatter_add::Args partial;
  partial.rows = window_like(steps, send);
  partial.weights = window_like(steps, weights);
  partial.destinations = window_like(steps, tokens);
  steps.fill(partial.destinations, 0xFFFFFFFFU);
  exchange_slabs(servers.in_server(), in_server,
                 {{send, partial.rows}, {weights, partial.weights}, {tokens, partial.destinations}});
  const bool quantized = args.comm_quant_mode != 0;
  partial.out = steps.scratch(quantized ? DType::f32 : d.dtype, {partial_rows, d.hidden});
  partial.scratch = steps.scratch_bytes(scatter_add::scratch_bytes(window, partial_rows, steps.caps()));
  steps.run(partial);

  // Lists, for each home rank, the tokens that have rows here. Row counts serve as owners: counts from 1 on are one
  // group.
  const auto slabs_of = [&](const TensorView& owners, std::int32_t first, std::int32_t each, std::int32_t slabs,
                            std::int32_t groups) {
    const TensorView ids = steps.scratch(DType::i32, {owners.shape[0], groups});
    steps.run(window_slots::ReachedGroups{owners, first, each, slabs, ids});
    return sort_ids(steps, ids, slabs * groups);
  };
  const TensorView rows_each = steps.scratch(DType::i32, {std::max<std::int64_t>(partial_rows, 1)});
  steps.run(index_vectors::Histogram{partial.destinations, rows_each});
  constexpr std::int32_t any = std::numeric_limits<std::int32_t>::max();
  const SortedIds leaving = slabs_of(as_column(rows_each.rows(0, partial_rows)), 1, any, count, 1);
  const TensorView to_cross = steps.scratch(DType::i32, {partial_rows});
  steps.run(window_slots::Outgoing{leaving.row_ends, leaving.sorted_slots, count, to_cross});
  TensorView scales;
  const TensorView crossing = wire_rows(steps, args.comm_quant_mode, partial.out, to_cross, d.dtype, scales);

  const SortedIds home = slabs_of(r.routes.owners, 0, servers.each * static_cast<std::int32_t>(d.local_experts()), 1,
                                  count);  // this rank's tokens, by server
  SlabExchange homes{d.most_tokens, reshaped(home.row_ends, {1, count}), {}};
  for (std::int32_t server = 0; server < count; ++server)
    homes.slabs.push_back({server, servers.mine, server, 0, server, server + 1});
  exchange_wire(steps, servers.peers(), homes, crossing, scales, sum);
  sum.slot_rows = steps.scratch(DType::i32, {d.tokens * count});
  steps.run(window_slots::ReturnRows{home.row_ends, home.slot_rows, count, d.most_tokens, sum.slot_rows});
}

template <class Args>
void compose(Steps& steps, const Args& args, Communicator* ranks) {
  const Distribution d = distribution_of(args);
  expect_tensor(args.expert_scales, "expert_scales", DType::f32, {d.tokens, d.top_k});
  const Returning r = compose_routes(steps, args, d);
  compose_check(steps, args, d, r, ranks);
  combine::Args sum;
  sum.active = r.routes.active;
  sum.out = args.out;
  if (args.shared_expert_x.present()) {
    require(args.shared_expert_x.dtype == d.dtype, "shared_expert_x: expected {}, got {}", name(d.dtype),
            args.shared_expert_x);
    sum.shared = reshaped(args.shared_expert_x, {d.tokens, d.hidden});
  }
  if (!d.hierarchy)
    compose_fullmesh(steps, args, d, r, ranks, sum);
  else if constexpr (is_v2<Args>)
    compose_hierarchy(steps, args, d, r, ranks, sum);
  steps.run(sum);
}

template <class Args>
std::uint64_t workspace_of(const Args& args, const Device& device) {
  return measure_for_servers<Args>(args, device, [](Steps& steps, const Args& a) { compose(steps, a, nullptr); });
}

/// The cost with full windows: rows are read, sent and summed.
template <class Args>
OperatorCost combine_cost(const Args& args) {
  const Distribution d = distribution_of(args);
  const auto elements = static_cast<std::uint64_t>(d.window_rows() * d.hidden);
  const std::uint64_t slots = static_cast<std::uint64_t>(d.tokens * d.columns() * d.hidden);
  return {4 * elements * size_bytes(d.dtype) + slots * size_bytes(d.dtype), 2 * slots};
}

template <class Args>
void combine_rows(Communicator& ranks, const Args& args, const Call& how) {
  call_together(ranks, args, how, compose<Args>, {{"comm_quant_mode", args.comm_quant_mode}});
}

}  // namespace

void infer(MoeDistributeCombineV2Args& args) { infer_combine(args); }
void infer(MoeDistributeCombineArgs& args) { infer_combine(args); }
std::uint64_t workspace_bytes(const MoeDistributeCombineV2Args& args, const Device& device) {
  return workspace_of(args, device);
}
std::uint64_t workspace_bytes(const MoeDistributeCombineArgs& args, const Device& device) {
  return workspace_of(args, device);
}
OperatorCost cost(const MoeDistributeCombineV2Args& args) { return combine_cost(args); }
OperatorCost cost(const MoeDistributeCombineArgs& args) { return combine_cost(args); }
void moe_distribute_combine_v2(Communicator& ranks, const MoeDistributeCombineV2Args& args, const Call& how) {
  combine_rows(ranks, args, how);
}
void moe_distribute_combine(Communicator& ranks, const MoeDistributeCombineArgs& args, const Call& how) {
  combine_rows(ranks, args, how);
}

}  // namespace moecl::npu
