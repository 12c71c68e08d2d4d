#include <moecl/expert_routes.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/window_slots.hpp>

#include "host/npu/describe_distribute.hpp"
#include "host/npu/distribute.hpp"
#include "host/npu/parcel.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {
namespace {

template <class Args>
constexpr bool is_v2 = std::is_same_v<Args, MoeDistributeDispatchV2Args>;

/// The codes that the caller asks for.
struct Asked {
  std::optional<DType> dtype;
  RowCodeType codes = RowCodeType::none;
};
Asked asked_by(const MoeDistributeDispatchV2Args& args) { return {args.y_dtype, args.y_codes}; }
Asked asked_by(const MoeDistributeDispatchArgs& /*args*/) { return {}; }

/// The fp8 format that the caller asks for; e4m3 by default. Errors: invalid_argument  y_dtype is not fp8
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

/// The MX blocks of quant_mode 4 and 5.
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

/// How rows are quantized before they travel; none: they stay as they are.
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

/// Sets the shape of dynamic_scales for `count` rows; absent if rows have no scales.
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

/// What this rank sends: its routes, its codes, and its slots sorted by owner.
struct Sending {
  expert_routes::Args routes;
  std::optional<RowCodes> codes;
  SortedIds by_owner;
};

template <class Args>
Sending compose_routes(Steps& steps, const Args& args, const Distribution& d) {
  Sending s;
  s.codes = wire_codes(args);
  expert_routes::Args& routes = s.routes;
  routes.expert_ids = args.expert_ids;
  routes.experts = d.experts;
  routes.shared_experts = d.shared_experts;
  routes.shared_ranks = d.shared_ranks;
  routes.rank = d.rank;
  routes.owners = steps.scratch(DType::i32, {d.tokens, d.columns()});
  routes.fault = steps.fault();
  if (by_expert(args)) routes.smooth_rows = steps.scratch(DType::i32, {d.tokens * d.columns()});
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
  s.by_owner = sort_ids(steps, routes.owners, d.owners());
  return s;
}

/// Makes the rows that travel: rows of x by index, moved or quantized, and their scales.
template <class Args>
void compose_rows(Steps& steps, const Args& args, const Sending& s, MovedRows moved, std::int64_t count,
                  TensorView& rows, TensorView& scales) {
  rows = steps.scratch(args.expand_x.dtype, {count, args.expand_x.shape[1]});
  if (args.dynamic_scales.present()) scales = room_for(steps, count, args.dynamic_scales, args.dynamic_scales.dtype);
  if (s.codes) {
    const bool one = args.scales.rank == 1 && args.scales.shape[0] == 1;
    if (!one) moved.smooth = args.scales;
    return quantize_moved(steps, *s.codes, moved, rows, scales);
  }
  move_rows(steps, moved, rows);
  if (scales.present()) move_all(steps, args.scales, moved.index, moved.divisor, {}, scales);
}

/// Writes the received rows to the outputs, in expert order.
/// @param each  slots of a place of the window; a place has one row
template <class Args>
void deliver(Steps& steps, const Args& args, const Parcel& window, const SortedIds& order, std::int32_t each) {
  const auto rows_to = [&](const TensorView& from, const TensorView& out, std::int32_t divisor) {
    if (!from.present()) return;
    const std::int64_t rows = std::min(out.shape[0], order.sorted_slots.shape[0]);
    move_all(steps, from, order.sorted_slots.rows(0, rows), divisor, order.row_ends, out.rows(0, rows));
  };
  rows_to(window.rows, args.expand_x, each);
  rows_to(window.scales, args.dynamic_scales, each);
  if (window.weights.present()) rows_to(reshaped(window.weights, {window.weights.elements()}), args.expand_scales, 1);
}

template <class Args>
void compose_counts(Steps& steps, const Args& args, const Distribution& d, const TensorView& all_ends) {
  steps.run(window_slots::Counts{all_ends, d.rank, args.ep_recv_counts, args.expert_token_nums,
                                 args.expert_token_nums_type == 0, d.shared_ranks});
}

/// Sends a row for each (token, expert) pair directly to the rank of the expert.
template <class Args>
void compose_fullmesh(Steps& steps, const Args& args, const Distribution& d, const Sending& s, Communicator* ranks) {
  const std::int64_t window = d.window_rows();
  const TensorView to_send = steps.scratch(DType::i32, {window});
  steps.run(window_slots::Outgoing{s.by_owner.row_ends, s.by_owner.sorted_slots, d.ranks, to_send, d.shared_ranks});
  Parcel send;
  compose_rows(steps, args, s, {args.x, to_send, d.columns(), {}, 0, {}, s.routes.smooth_rows}, window, send.rows,
               send.scales);
  if (s.routes.weights.present()) {
    send.weights = steps.scratch(DType::f32, {window});
    move_all(steps, reshaped(s.routes.row_weights, {d.tokens * d.columns()}), to_send, 1, {}, send.weights);
  }
  if constexpr (is_v2<Args>) send.slots = to_send;

  const TensorView all_ends = gather_lists(steps, ranks, d.ranks, {s.by_owner.row_ends}).front();
  const TensorView local_ids = steps.scratch(DType::i32, {window, 1});
  steps.run(window_slots::Incoming{all_ends, d.rank, local_ids, d.shared_ranks});
  const SortedIds order = sort_ids(steps, local_ids, static_cast<std::int32_t>(d.local_experts()));
  compose_counts(steps, args, d, all_ends);
  SlabExchange how{d.capacity(), all_ends, {}};
  for (std::int32_t r = 0; r < d.ranks; ++r)
    how.slabs.push_back({r, d.rank, r, r, d.first_owner(d.rank), d.first_owner(d.rank + 1)});
  const Parcel came = send.window(steps);
  exchange_slabs(ranks, how, send.to(came));
  deliver(steps, args, came, order, 1);
  if constexpr (is_v2<Args>) {
    const std::int64_t rows = std::min(window, d.expand_rows());
    steps.run(window_slots::Sources{order.row_ends, order.sorted_slots.rows(0, rows), came.slots, d.ranks, d.columns(),
                                    args.assist_info_for_combine});
  }
}

/// Sends rows server by server: one for each token, or one for each pair if codes depend on the expert.
void compose_hierarchy(Steps& steps, const MoeDistributeDispatchV2Args& args, const Distribution& d, const Sending& s,
                       Communicator* ranks) {
  const bool pairs = by_expert(args);
  const std::int32_t each = pairs ? 1 : d.columns();
  const std::int64_t units = pairs ? d.tokens * d.columns() : d.tokens;
  Parcel own;
  own.owners = reshaped(s.routes.owners, {units, each});
  own.weights = reshaped(s.routes.row_weights, {units, each});
  if (s.codes) {
    MovedRows moved{args.x, {}, d.columns() / each, {}, 0, {}, s.routes.smooth_rows};
    if (pairs) {
      const TensorView slots = steps.scratch(DType::i32, {units, 1});
      steps.run(index_vectors::ColumnOrder{slots});
      moved.index = reshaped(slots, {units});
    }
    compose_rows(steps, args, s, moved, units, own.rows, own.scales);
  } else {
    own.rows = args.x;
    own.scales = args.scales;
  }
  TensorView all_ends;
  const Parcel came = server_by_server(steps, d, own, s.by_owner.row_ends, ranks, all_ends);
  compose_counts(steps, args, d, all_ends);
  const SortedIds order = sort_ids(steps, came.owners, static_cast<std::int32_t>(d.local_experts()),
                                   static_cast<std::int32_t>(d.first_owner(d.rank)));
  deliver(steps, args, came, order, each);
  const std::int64_t rows = std::min(order.sorted_slots.shape[0], d.expand_rows());
  steps.run(window_slots::Sources{order.row_ends, order.sorted_slots.rows(0, rows), came.slots, d.ranks, d.columns(),
                                  args.assist_info_for_combine, each, d.ranks / d.ranks_per_server});
}

template <class Args>
void compose(Steps& steps, const Args& args, Communicator* ranks) {
  const Distribution d = distribution_of(args);
  const Sending s = compose_routes(steps, args, d);
  if constexpr (is_v2<Args>) {
    if (d.hierarchy) return compose_hierarchy(steps, args, d, s, ranks);
  } else {
    steps.run(window_slots::PositionsInExpert{s.by_owner.row_ends, s.by_owner.slot_rows, d.columns(),
                                              reshaped(args.expand_idx, {d.tokens, d.top_k})});
  }
  compose_fullmesh(steps, args, d, s, ranks);
}

template <class Args>
std::uint64_t workspace_of(const Args& args, const Device& device) {
  return measure_for_servers<Args>(args, device, [](Steps& steps, const Args& a) { compose(steps, a, nullptr); });
}

/// The cost with full windows: rows are read, sent and written.
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
