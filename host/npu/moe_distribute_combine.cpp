#include <moecl/combine.hpp>
#include <moecl/const_experts.hpp>
#include <moecl/expert_routes.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/quantize_rows.hpp>
#include <moecl/scatter_add.hpp>
#include <moecl/window_slots.hpp>

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

/// The rows that this rank computed, on their way to the ranks whose tokens they are.
struct Returning {
  TensorView to_send;  ///< which row stands where in the window. Shape: [ranks * capacity] i32
  SortedIds home;      ///< this rank's own slots
  expert_routes::Args routes;
};

template <class Args>
Returning compose_routes(Steps& steps, const Args& args, const Distribution& d) {
  Returning r;
  const TensorView sources = steps.scratch(DType::i32, {d.expand_rows()});
  expect_tensor(args.ep_send_counts, "ep_send_counts", DType::i32, {d.local_experts() * d.ranks});
  steps.run(index_vectors::GroupOfRow{args.ep_send_counts, d.ranks, sources});
  const SortedIds by_source = sort_ids(steps, as_column(sources), d.ranks);
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

/// Strict mode: what dispatch said about the rows against what this call's ids and mask say.
void compose_check(Steps& steps, const MoeDistributeCombineV2Args& args, const Distribution& d, const Returning& r,
                   Communicator* ranks) {
  expect_tensor(args.assist_info_for_combine, "assist_info_for_combine", DType::i32, {-1});
  if (!steps.strict()) return;
  const TensorView source_slots = steps.scratch(DType::i32, {d.window_rows()}),
                   expected = steps.scratch(DType::i32, {d.window_rows()});
  if (!steps.fault().present()) return void(exchange_slabs(steps, nullptr, source_slots));
  steps.run(window_slots::SourceSlots{r.to_send, args.assist_info_for_combine, d.ranks, d.columns(), source_slots});
  steps.run(window_slots::Outgoing{r.home.row_ends, r.home.sorted_slots, d.ranks, expected, d.shared_ranks});
  steps.run(index_vectors::Expect{exchange_slabs(steps, ranks, source_slots), expected, steps.fault()});
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

/// Rows of copy and constant experts, as what combine adds to the row of a slot.
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

/// Rows for the wire, as comm_quant_mode has them there.
/// @param index  which rows; absent: all
/// @return  i8 with `scales`, or rows of the type of `plain`, not written before: MX codes are sent as their numbers
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

/// Every row goes home by itself.
template <class Args>
void compose_fullmesh(Steps& steps, const Args& args, const Distribution& d, const Returning& r, Communicator* ranks,
                      combine::Args& sum) {
  sum.slot_rows = steps.scratch(DType::i32, {d.tokens * d.columns()});
  steps.run(window_slots::ReturnRows{r.home.row_ends, r.home.slot_rows, d.ranks, d.capacity(), sum.slot_rows,
                                     d.shared_ranks});
  sum.weights = r.routes.row_weights;
  TensorView scales;
  const TensorView send = wire_rows(steps, args.comm_quant_mode, args.expand_x, r.to_send, d.dtype, scales);
  if (scales.present()) sum.rows_scale = exchange_slabs(steps, ranks, scales);
  sum.rows = exchange_slabs(steps, ranks, send);
  if constexpr (is_v2<Args>) compose_special(steps, args, d, r, sum);
}

/// Slabs of a window [servers, ranks of a server, ...] to the rank of this server with the home's index.
TensorView exchange_in_server(Steps& steps, Communicator* server, std::int32_t servers, const TensorView& send) {
  TensorView received = send;
  received.buffer = steps.scratch_bytes(send.size_bytes());
  if (server == nullptr) return received;
  const std::uint64_t each = send.size_bytes() / static_cast<std::uint64_t>(servers);
  const std::uint64_t slab = each / static_cast<std::uint64_t>(server->size());
  Communicator::Blocks blocks;
  for (std::int32_t r = 0; r < server->size(); ++r) {
    blocks.offsets.push_back(static_cast<std::uint64_t>(r) * slab);
    blocks.bytes.push_back(slab);
  }
  for (std::int32_t s = 0; s < servers; ++s) {
    const std::uint64_t first = static_cast<std::uint64_t>(s) * each;
    server->all_to_all_v(send.buffer.slice(first, each), blocks, received.buffer.slice(first, each), blocks);
  }
  return received;
}

/// Rows meet at the rank of their server that has the home's index; its weighted sum of a token crosses to the home.
void compose_hierarchy(Steps& steps, const MoeDistributeCombineV2Args& args, const Distribution& d, const Returning& r,
                       Communicator* ranks, combine::Args& sum) {
  const std::int32_t each = d.ranks_per_server, servers = d.ranks / each;
  std::optional<Communicator> server, peers;
  if (ranks != nullptr) {
    std::vector<std::int32_t> near, alike;
    for (std::int32_t i = 0; i < each; ++i) near.push_back(d.rank / each * each + i);
    for (std::int32_t s = 0; s < servers; ++s) alike.push_back(s * each + d.rank % each);
    server = ranks->part(near);
    peers = ranks->part(alike);
  }
  Communicator* const in_server = server ? &*server : nullptr;
  const std::int64_t window = d.window_rows(), partial_rows = servers * d.most_tokens;
  const TensorView send = steps.scratch(d.dtype, {window, d.hidden}), weights = steps.scratch(DType::f32, {window}),
                   tokens = steps.scratch(DType::i32, {window});
  expect_tensor(args.expand_scales, "expand_scales", DType::f32, {d.expand_rows()});
  steps.run(gather_rows::Args{args.expand_x, r.to_send, 1, {}, 0, send});
  steps.run(gather_rows::Args{as_column(args.expand_scales), r.to_send, 1, {}, 0, as_column(weights)});
  steps.run(
      window_slots::DestinationTokens{r.to_send, args.assist_info_for_combine, d.ranks, each, d.most_tokens, tokens});
  scatter_add::Args partial;
  partial.rows = exchange_in_server(steps, in_server, servers, send);
  partial.weights = exchange_in_server(steps, in_server, servers, weights);
  partial.destinations = exchange_in_server(steps, in_server, servers, tokens);
  const bool quantized = args.comm_quant_mode != 0;
  partial.out = steps.scratch(quantized ? DType::f32 : d.dtype, {partial_rows, d.hidden});
  partial.scratch = steps.scratch_bytes(scatter_add::scratch_bytes(window, partial_rows, steps.caps()));
  steps.run(partial);

  Communicator* const to_homes = peers ? &*peers : nullptr;
  TensorView crossing = partial.out, scales;
  if (quantized) crossing = wire_rows(steps, args.comm_quant_mode, partial.out, {}, d.dtype, scales);
  if (scales.present()) sum.rows_scale = exchange_slabs(steps, to_homes, scales);
  sum.rows = exchange_slabs(steps, to_homes, crossing);
  const TensorView order = steps.scratch(DType::i32, {d.most_tokens, servers});
  steps.run(index_vectors::ColumnOrder{order});
  sum.slot_rows = reshaped(order.rows(0, d.tokens), {d.tokens * servers});
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
  return measure(args, device, [](Steps& steps, const Args& a) { compose(steps, a, nullptr); });
}

/// Rows read, sent and summed in full windows.
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
