#include <moecl/expert_routes.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/window_slots.hpp>

#include "host/npu/describe_distribute.hpp"
#include "host/npu/distribute.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {
namespace {

template <class Args>
constexpr bool is_v2 = std::is_same_v<Args, MoeDistributeDispatchV2Args>;

/// What the caller wants rows to become.
struct Asked {
  std::optional<DType> dtype;
  RowCodeType codes = RowCodeType::none;
};
Asked asked_by(const MoeDistributeDispatchV2Args& args) { return {args.y_dtype, args.y_codes}; }
Asked asked_by(const MoeDistributeDispatchArgs& /*args*/) { return {}; }

/// fp8 that is asked for. Errors: invalid_argument  it is no fp8
Minifloat fp8_of(const Asked& asked, std::int64_t quant_mode) {
  if (asked.dtype == DType::f8_e5m2) return fp8_e5m2;
  require(!asked.dtype || asked.dtype == DType::f8_e4m3,
          "y_dtype: quant_mode {} gives f8_e4m3 or f8_e5m2, asked for {}", quant_mode, name(*asked.dtype));
  return fp8_e4m3fn;
}
quantize_rows::Codes codes_of(const Minifloat& fp8) {
  return fp8.mantissa_bits == 3 ? quantize_rows::Codes::e4m3 : quantize_rows::Codes::e5m2;
}

RowCodes given_rows(quantize_rows::Codes codes, const TensorView& scale) {
  RowCodes how;
  how.rows.codes = codes;
  how.rows.scheme = quantize_rows::Scheme::given;
  if (scale.rank == 1 && scale.shape[0] == 1) how.rows.scale = scale;
  return how;
}

/// MX blocks of quant_mode 4 and 5.
RowCodes blocks_of(const Asked& asked, std::int64_t quant_mode) {
  if (quant_mode == 4 && asked.codes == RowCodeType::e2m1) return mx_rows(fp4_e2m1, mx_quantize::ScaleRule::floor_amax);
  if (quant_mode == 4 && asked.codes == RowCodeType::e1m2) return mx_rows(fp4_e1m2, mx_quantize::ScaleRule::floor_amax);
  const Minifloat fp8 = fp8_of(asked, quant_mode);
  if (quant_mode == 4) return mx_rows(fp8, mx_quantize::ScaleRule::floor_amax);
  RowCodes how = mx_rows(fp8, mx_quantize::ScaleRule::ceil_ratio);
  how.blocks->least_amax = 1e-4F;
  how.blocks->zeros_stay = true;
  return how;
}

/// How rows become codes on their way; none: they stay as they are.
template <class Args>
std::optional<RowCodes> wire_codes(const Args& args) {
  using quantize_rows::Codes;
  using quantize_rows::Rounding;
  const Asked asked = asked_by(args);
  require((asked.codes != RowCodeType::none) == (asked.dtype == DType::u8),
          "y_codes: they say what rows of y_dtype u8 are, got {} and {}",
          row_code_types[static_cast<std::size_t>(asked.codes)], asked.dtype ? name(*asked.dtype) : "none");
  const bool hif8 = asked.codes == RowCodeType::hif8;
  require(!hif8 || args.quant_mode <= 1, "y_codes: quant_mode {} gives no hif8", args.quant_mode);
  switch (args.quant_mode) {
    case 0:
      if (hif8) return given_rows(Codes::hif8, {});
      require(!asked.dtype || *asked.dtype == args.x.dtype, "y_dtype: expand_x is {}, asked for {}", name(args.x.dtype),
              name(*asked.dtype));
      return std::nullopt;
    case 1:
      require(hif8 || !asked.dtype || *asked.dtype == DType::i8, "y_dtype: quant_mode 1 gives i8 or hif8");
      return given_rows(hif8 ? Codes::hif8 : Codes::integer, args.scales);
    case 2:
      if (asked.dtype && *asked.dtype != DType::i8)
        return float_rows(codes_of(fp8_of(asked, 2)), Rounding::multiply_127_by_amax);
      return float_rows(Codes::integer, Rounding::multiply_127_by_amax);
    case 3:
      return float_rows(codes_of(fp8_of(asked, 3)), Rounding::multiply_127_by_amax_scaled, 128);
    default:
      return blocks_of(asked, args.quant_mode);
  }
}

/// Whether scales are smooth vectors of the experts.
template <class Args>
bool by_expert(const Args& args) {
  return args.scales.rank == 2 && args.quant_mode >= 1 && args.quant_mode <= 3;
}

template <class Args>
void expect_scales(const Args& args, const Distribution& d, const std::optional<RowCodes>& codes) {
  if (codes) codes->check(args.x);
  const TensorView& scales = args.scales;
  if (args.quant_mode == 0 && is_wire_code(args.x.dtype)) {
    const bool bytes = scales.dtype == DType::u8 && scales.rank == 2;
    require(scales.present() && scales.contiguous() && scales.shape[0] == d.tokens &&
                (bytes || (scales.dtype == DType::f32 && (scales.rank == 1 || scales.rank == 2))),
            "scales: expected f32[{}], f32[{}, S] or u8[{}, S] beside codes, got {}", d.tokens, d.tokens, d.tokens,
            scales);
    return;
  }
  require(args.quant_mode != 1 || scales.present(), "scales: quant_mode 1 needs them");
  if (!scales.present()) return;
  require(args.quant_mode >= 1 && args.quant_mode <= 3, "scales: quant_mode {} does not use them", args.quant_mode);
  if (args.quant_mode == 1 && scales.rank == 1) {
    const bool one = scales.shape[0] == 1;
    require(one || codes->rows.codes == quantize_rows::Codes::integer, "scales: HiFloat8 takes f32[1], got {}", scales);
    return expect_tensor(scales, "scales", DType::f32, {one ? 1 : d.hidden});
  }
  require(args.quant_mode != 1 || codes->rows.codes == quantize_rows::Codes::integer,
          "scales: HiFloat8 takes f32[1], got {}", scales);
  expect_tensor(scales, "scales", DType::f32, {d.shared_experts + d.experts, d.hidden});
}

/// The rows' scales, if they have any: those of `count` rows.
template <class Args>
void set_scales(Args& args, const Distribution& d, const std::optional<RowCodes>& codes, std::int64_t count) {
  args.dynamic_scales.rank = 0;
  std::vector<std::int64_t> shape = {count};
  if (codes && !codes->given()) {
    for (const std::int64_t each : codes->row_scales(d.hidden)) shape.push_back(each);
    set_shape(args.dynamic_scales, codes->scale_dtype(), shape);
  } else if (!codes && args.scales.present()) {
    if (args.scales.rank == 2) shape.push_back(args.scales.shape[1]);
    set_shape(args.dynamic_scales, args.scales.dtype, shape);
  }
}

template <class Args>
void infer_dispatch(Args& args) {
  const Distribution d = distribution_of(args);
  require(args.x.shape[0] == d.tokens, "x, expert_ids: {} and {} are not of as many tokens", args.x, args.expert_ids);
  require(args.quant_mode >= 0 && args.quant_mode <= 5, "quant_mode: {} is not in [0, 5]", args.quant_mode);
  require(args.expert_token_nums_type == 0 || args.expert_token_nums_type == 1,
          "expert_token_nums_type: {} is neither 0 nor 1", args.expert_token_nums_type);
  const std::optional<RowCodes> codes = wire_codes(args);
  expect_scales(args, d, codes);
  const std::int64_t rows = d.expand_rows();
  set_shape(args.expand_x, codes ? codes->dtype() : args.x.dtype, {rows, codes ? codes->width(d.hidden) : d.hidden});
  set_scales(args, d, codes, rows);
  args.tp_recv_counts.rank = args.expand_scales.rank = 0;
  set_shape(args.expert_token_nums, DType::i64, {d.local_experts()});
  set_shape(args.ep_recv_counts, DType::i32, {d.local_experts() * d.ranks});
  if (args.tp_world_size == 1) set_shape(args.tp_recv_counts, DType::i32, {1});
  if (args.expert_scales.present()) {
    expect_tensor(args.expert_scales, "expert_scales", DType::f32, {d.tokens, d.top_k});
    set_shape(args.expand_scales, DType::f32, {rows});
  }
  if constexpr (is_v2<Args>) {
    if (args.x_dtype || args.scales_dtype)
      fail(ErrorCode::unsupported, "x_dtype, scales_dtype: tensors say their types themselves");
    require(!d.hierarchy || args.expert_scales.present(), "expert_scales: comm_alg hierarchy needs them");
    set_shape(args.assist_info_for_combine, DType::i32, {std::max(d.tokens * d.top_k, 128 * rows)});
  } else {
    set_shape(args.expand_idx, DType::i32, {d.tokens * d.top_k});
  }
}

/// A value of each window row to the row of `out` that it became.
void deliver(Steps& steps, Communicator* ranks, const TensorView& send, const SortedIds& order, const TensorView& out) {
  const TensorView window = exchange_slabs(steps, ranks, send);
  const std::int64_t rows = std::min(out.shape[0], window.shape[0]);
  const bool is_vector = out.rank == 1;
  move_rows(steps,
            {is_vector ? as_column(window) : window, order.sorted_slots.rows(0, rows), 1, order.row_ends, 0, {}, {}},
            (is_vector ? as_column(out) : out).rows(0, rows));
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
  if (by_expert(args)) routes.smooth_rows = steps.scratch(DType::i32, {slots});
  if (args.expert_scales.present()) {
    routes.weights = args.expert_scales;
    routes.row_weights = steps.scratch(DType::f32, {d.tokens, d.columns()});
  }
  if constexpr (is_v2<Args>) {
    routes.mask = args.x_active_mask;
    routes.zero_experts = d.zero_experts;
    routes.copy_experts = d.copy_experts;
    routes.const_experts = d.const_experts;
  }
  steps.run(routes);

  const SortedIds sorted = sort_ids(steps, routes.owners, d.owners());
  const TensorView to_send = steps.scratch(DType::i32, {window});
  steps.run(window_slots::Outgoing{sorted.row_ends, sorted.sorted_slots, d.ranks, to_send, d.shared_ranks});
  const std::optional<RowCodes> codes = wire_codes(args);
  const TensorView send = steps.scratch(args.expand_x.dtype, {window, args.expand_x.shape[1]});
  MovedRows moved{args.x, to_send, d.columns(), {}, 0, {}, routes.smooth_rows};
  TensorView scales;  // of the window's rows
  if (args.dynamic_scales.present()) {
    const bool vector = args.dynamic_scales.rank == 1;
    scales = vector ? steps.scratch(args.dynamic_scales.dtype, {window})
                    : steps.scratch(args.dynamic_scales.dtype, {window, args.dynamic_scales.shape[1]});
  }
  if (codes) {
    const bool one = args.scales.rank == 1 && args.scales.shape[0] == 1;
    if (!one) moved.smooth = args.scales;
    quantize_moved(steps, *codes, moved, send, scales);
  } else {
    move_rows(steps, moved, send);
    if (scales.present()) {
      moved.x = args.scales.rank == 1 ? as_column(args.scales) : args.scales;
      move_rows(steps, moved, scales.rank == 1 ? as_column(scales) : scales);
    }
  }

  const TensorView all_ends = steps.scratch(DType::i32, {d.ranks, d.owners()});
  if (ranks != nullptr) ranks->all_gather(sorted.row_ends.buffer, all_ends.buffer);
  const TensorView local_ids = steps.scratch(DType::i32, {window, 1});
  steps.run(window_slots::Incoming{all_ends, d.rank, local_ids, d.shared_ranks});
  const SortedIds order = sort_ids(steps, local_ids, static_cast<std::int32_t>(d.local_experts()));
  steps.run(window_slots::Counts{all_ends, d.rank, args.ep_recv_counts, args.expert_token_nums,
                                 args.expert_token_nums_type == 0, d.shared_ranks});
  deliver(steps, ranks, send, order, args.expand_x);
  if (scales.present()) deliver(steps, ranks, scales, order, args.dynamic_scales);
  if (args.expert_scales.present()) {
    const TensorView weights = steps.scratch(DType::f32, {window});
    move_rows(steps, {reshaped(routes.row_weights, {slots, 1}), to_send, 1, {}, 0, {}, {}}, as_column(weights));
    deliver(steps, ranks, weights, order, args.expand_scales);
  }
  if constexpr (is_v2<Args>) {
    const TensorView from = exchange_slabs(steps, ranks, to_send);
    const std::int64_t rows = std::min(window, d.expand_rows());
    steps.run(window_slots::Sources{order.row_ends, order.sorted_slots.rows(0, rows), from, d.ranks, d.columns(),
                                    args.assist_info_for_combine});
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
  return {args.x.size_bytes() + 3 * static_cast<std::uint64_t>(d.window_rows() * args.expand_x.shape[1]) *
                                    size_bytes(args.expand_x.dtype),
          0};
}

template <class Args>
void dispatch(Communicator& ranks, const Args& args, const Call& how) {
  call_together(ranks, args, how, compose<Args>,
                {{"quant_mode", args.quant_mode},
                 {"scales", args.scales.present()},
                 {"y_dtype", args.expand_x.dtype},
                 {"expert_scales", args.expert_scales.present()}});
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
