#include <moecl/expert_routes.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/quantize_rows.hpp>
#include <moecl/window_slots.hpp>

#include "host/npu/describe_distribute.hpp"
#include "host/npu/distribute.hpp"

namespace moecl::npu {
namespace {

template <class Args>
constexpr bool is_v2 = std::is_same_v<Args, MoeDistributeDispatchV2Args>;

template <class Args>
void infer_dispatch(Args& args) {
  const Distribution d = distribution_of(args);
  require(args.x.shape[0] == d.tokens, "x, expert_ids: {} and {} are not of as many tokens", args.x, args.expert_ids);
  if (args.quant_mode == 1 || (args.quant_mode >= 3 && args.quant_mode <= 5))
    fail(ErrorCode::unsupported, "quant_mode: {}, only 0 and 2 are supported", args.quant_mode);
  require(args.quant_mode == 0 || args.quant_mode == 2, "quant_mode: {} is neither 0 nor 2", args.quant_mode);
  require(args.expert_token_nums_type == 0 || args.expert_token_nums_type == 1,
          "expert_token_nums_type: {} is neither 0 nor 1", args.expert_token_nums_type);
  require(!args.scales.present() || args.quant_mode == 2, "scales: quant_mode {} does not use them", args.quant_mode);
  const DType dtype = args.quant_mode == 2 ? DType::i8 : args.x.dtype;
  const std::int64_t rows = d.expand_rows();
  set_shape(args.expand_x, dtype, {rows, d.hidden});
  args.dynamic_scales.rank = args.tp_recv_counts.rank = 0;
  if (args.quant_mode == 2) set_shape(args.dynamic_scales, DType::f32, {rows});
  set_shape(args.expert_token_nums, DType::i64, {d.local_experts()});
  set_shape(args.ep_recv_counts, DType::i32, {d.local_experts() * d.ranks});
  if (args.tp_world_size == 1) set_shape(args.tp_recv_counts, DType::i32, {1});
  if constexpr (is_v2<Args>) {
    if (args.x_dtype || args.scales_dtype)
      fail(ErrorCode::unsupported, "x_dtype, scales_dtype: tensors say their types themselves");
    if (args.y_dtype && *args.y_dtype != dtype)
      fail(ErrorCode::unsupported, "y_dtype: expand_x is {}, asked for {}", name(dtype), name(*args.y_dtype));
    require(!d.hierarchy || args.expert_scales.present(), "expert_scales: comm_alg hierarchy needs them");
    set_shape(args.assist_info_for_combine, DType::i32, {std::max(d.tokens * d.top_k, 128 * rows)});
    args.expand_scales.rank = 0;
    if (d.hierarchy) set_shape(args.expand_scales, DType::f32, {rows});
  } else {
    set_shape(args.expand_idx, DType::i32, {d.tokens * d.top_k});
  }
}

/// A value of each window row to the row of `out` that it became.
void deliver(Steps& steps, Communicator* ranks, const TensorView& send, const SortedIds& order, const TensorView& out) {
  const TensorView window = exchange_slabs(steps, ranks, send);
  const std::int64_t rows = std::min(out.shape[0], window.shape[0]);
  const bool is_vector = out.rank == 1;
  steps.run(gather_rows::Args{is_vector ? as_column(window) : window, order.sorted_slots.rows(0, rows), 1,
                              order.row_ends, 0, (is_vector ? as_column(out) : out).rows(0, rows)});
}

template <class Args>
void compose(Steps& steps, const Args& args, Communicator* ranks) {
  const Distribution d = distribution_of(args);
  const std::int64_t slots = d.tokens * d.columns(), window = d.window_rows();

  expert_routes::Args routes;
  routes.expert_ids = args.expert_ids;
  routes.experts = d.experts;
  routes.shared_experts = d.shared_experts;
  routes.shared_ranks = d.shared_ranks;
  routes.rank = d.rank;
  routes.owners = steps.scratch(DType::i32, {d.tokens, d.columns()});
  routes.fault = steps.fault();
  if (args.scales.present()) routes.smooth_rows = steps.scratch(DType::i32, {slots});
  if constexpr (is_v2<Args>) {
    routes.mask = args.x_active_mask;
    routes.zero_experts = d.zero_experts;
    routes.copy_experts = d.copy_experts;
    routes.const_experts = d.const_experts;
    if (d.hierarchy) {
      routes.weights = args.expert_scales;
      routes.row_weights = steps.scratch(DType::f32, {d.tokens, d.columns()});
    }
  }
  steps.run(routes);

  const SortedIds sorted = sort_ids(steps, routes.owners, d.owners());
  const TensorView to_send = steps.scratch(DType::i32, {window});
  steps.run(window_slots::Outgoing{sorted.row_ends, sorted.sorted_slots, d.ranks, to_send, d.shared_ranks});
  const TensorView send = steps.scratch(args.expand_x.dtype, {window, d.hidden});
  TensorView scales;
  if (args.quant_mode == 2) {
    scales = steps.scratch(DType::f32, {window});
    quantize_rows::Args quantize{args.x, {}, 0, send, scales, quantize_rows::Rounding::multiply_127_by_amax};
    quantize.index = to_send;
    quantize.divisor = d.columns();
    if (args.scales.present()) {
      expect_tensor(args.scales, "scales", DType::f32, {d.shared_experts + d.experts, d.hidden});
      quantize.smooth = args.scales;
      quantize.smooth_rows = routes.smooth_rows;
    }
    steps.run(quantize);
  } else {
    steps.run(gather_rows::Args{args.x, to_send, d.columns(), {}, 0, send});
  }

  const TensorView all_ends = steps.scratch(DType::i32, {d.ranks, d.owners()});
  if (ranks != nullptr) ranks->all_gather(sorted.row_ends.buffer, all_ends.buffer);
  const TensorView local_ids = steps.scratch(DType::i32, {window, 1});
  steps.run(window_slots::Incoming{all_ends, d.rank, local_ids, d.shared_ranks});
  const SortedIds order = sort_ids(steps, local_ids, static_cast<std::int32_t>(d.local_experts()));
  steps.run(window_slots::Counts{all_ends, d.rank, args.ep_recv_counts, args.expert_token_nums,
                                 args.expert_token_nums_type == 0, d.shared_ranks});
  deliver(steps, ranks, send, order, args.expand_x);
  if (args.quant_mode == 2) deliver(steps, ranks, scales, order, args.dynamic_scales);
  if constexpr (is_v2<Args>) {
    const TensorView from = exchange_slabs(steps, ranks, to_send);
    const std::int64_t rows = std::min(window, d.expand_rows());
    steps.run(window_slots::Sources{order.row_ends, order.sorted_slots.rows(0, rows), from, d.ranks, d.columns(),
                                    args.assist_info_for_combine});
    if (d.hierarchy) {
      const TensorView weights = steps.scratch(DType::f32, {window});
      steps.run(gather_rows::Args{reshaped(routes.row_weights, {slots, 1}), to_send, 1, {}, 0, as_column(weights)});
      deliver(steps, ranks, weights, order, args.expand_scales);
    }
  } else {
    steps.run(window_slots::PositionsInExpert{sorted.row_ends, sorted.slot_rows, d.columns(),
                                              reshaped(args.expand_idx, {d.tokens, d.top_k})});
  }
}

template <class Args>
std::uint64_t workspace_of(const Args& args, const Device& device) {
  return measure(args, device, [](Steps& steps, const Args& a) { compose(steps, a, nullptr); });
}

/// Rows read, sent and written in full windows.
template <class Args>
OperatorCost dispatch_cost(const Args& args) {
  const Distribution d = distribution_of(args);
  return {args.x.size_bytes() +
              3 * static_cast<std::uint64_t>(d.window_rows() * d.hidden) * size_bytes(args.expand_x.dtype),
          0};
}

template <class Args>
void dispatch(Communicator& ranks, const Args& args, const Call& how) {
  call_together(ranks, args, how, compose<Args>, {{"quant_mode", args.quant_mode}, {"scales", args.scales.present()}});
}

}  // namespace

void infer(MoeDistributeDispatchV2Args& args) { infer_dispatch(args); }
void infer(MoeDistributeDispatchArgs& args) { infer_dispatch(args); }
std::uint64_t workspace_bytes(const MoeDistributeDispatchV2Args& args, const Device& device) {
  return workspace_of(args, device);
}
std::uint64_t workspace_bytes(const MoeDistributeDispatchArgs& args, const Device& device) {
  return workspace_of(args, device);
}
OperatorCost cost(const MoeDistributeDispatchV2Args& args) { return dispatch_cost(args); }
OperatorCost cost(const MoeDistributeDispatchArgs& args) { return dispatch_cost(args); }
void moe_distribute_dispatch_v2(Communicator& ranks, const MoeDistributeDispatchV2Args& args, const Call& how) {
  dispatch(ranks, args, how);
}
void moe_distribute_dispatch(Communicator& ranks, const MoeDistributeDispatchArgs& args, const Call& how) {
  dispatch(ranks, args, how);
}

}  // namespace moecl::npu
