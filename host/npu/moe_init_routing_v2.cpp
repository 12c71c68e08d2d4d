#include <moecl/expert_sort.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/group_list.hpp>
#include <moecl/mx_quantize.hpp>
#include <moecl/quantize_rows.hpp>

#include <algorithm>
#include <limits>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"

namespace moecl::npu {
namespace {

/// The call's sizes, checked.
struct Sizes {
  std::int64_t tokens, top_k, hidden;
  std::int64_t first, end;  // active experts
  std::int64_t capacity;    // of each expert; 0: dropless
  std::int64_t rows;        // of expanded_x

  std::int64_t slots() const { return tokens * top_k; }
  std::int64_t experts() const { return end - first; }
};

/// The rules of a quant_mode that gives MX rows; none for another.
std::optional<mx_quantize::Args> mx_rules(std::int64_t quant_mode) {
  mx_quantize::Args rules;
  switch (quant_mode) {
    case 9:
      rules.format = fp4_e2m1;
      return rules;
    case 2:
    case 16:
      rules.format = fp8_e5m2;
      break;
    case 3:
    case 17:
      rules.format = fp8_e4m3fn;
      break;
    default:
      return std::nullopt;
  }
  rules.scale_rule = mx_quantize::ScaleRule::ceil_ratio;
  rules.least_scale = 1;  // 2^-126
  if (quant_mode >= 16) rules.least_amax = 1e-4F;
  return rules;
}

void expect_quantization(const MoeInitRoutingV2Args& args, const Sizes& sizes) {
  const bool mx = mx_rules(args.quant_mode).has_value();
  if (args.quant_mode >= 4 && args.quant_mode <= 15 && !mx)
    fail(ErrorCode::unsupported, "quant_mode: {} is not offered, only -1 to 3, 9, 16 and 17", args.quant_mode);
  require((args.quant_mode >= -1 && args.quant_mode <= 1) || mx, "quant_mode: {} is not in [-1, 17]", args.quant_mode);
  require(!mx || !args.scale.present(), "scale: quant_mode {} takes none, got {}", args.quant_mode, args.scale);
  require(args.quant_mode != 9 || sizes.hidden % 2 == 0, "x: fp4 codes are packed by two, but rows have {} columns",
          sizes.hidden);
  require(args.quant_mode == -1 || is_activation_dtype(args.x.dtype), "x: quant_mode {} takes floats, got {}",
          args.quant_mode, args.x);
  require(args.quant_mode == 0 || !args.offset.present(), "offset: only quant_mode 0 takes one, got {}", args.offset);
  if (args.quant_mode == 0) {
    expect_tensor(args.scale, "scale", DType::f32, {1});
    expect_tensor(args.offset, "offset", DType::f32, {1});
  } else if (args.scale.present() && args.quant_mode == -1) {
    expect_tensor(args.scale, "scale", DType::f32, {sizes.tokens});
  } else if (args.scale.present()) {
    const bool shared = args.scale.rank == 2 && args.scale.shape[0] == 1;
    expect_tensor(args.scale, "scale", DType::f32, {shared ? 1 : sizes.experts(), sizes.hidden});
  }
}

Sizes sizes_of(const MoeInitRoutingV2Args& args) {
  require(args.x.rank == 2 && (is_activation_dtype(args.x.dtype) || args.x.dtype == DType::i8),
          "x: expected f32, f16, bf16 or i8 [N, H], got {}", args.x);
  expect_tensor(args.expert_idx, "expert_idx", DType::i32, {args.x.shape[0], -1});
  Sizes sizes{args.x.shape[0], args.expert_idx.shape[1], args.x.shape[1], 0, args.expert_num, 0, 0};
  require(args.expert_num >= 1 && args.expert_num <= std::numeric_limits<std::int32_t>::max(),
          "expert_num: {} is outside [1, 2^31)", args.expert_num);
  if (!args.active_expert_range.empty()) {
    require(args.active_expert_range.size() == 2, "active_expert_range: expected 2 numbers, got {}",
            args.active_expert_range.size());
    sizes.first = args.active_expert_range[0];
    sizes.end = args.active_expert_range[1];
    require(sizes.first >= 0 && sizes.first < sizes.end && sizes.end <= args.expert_num,
            "active_expert_range: [{}, {}) is no range of {} experts", sizes.first, sizes.end, args.expert_num);
  }
  require(args.expert_tokens_num_type >= 0 && args.expert_tokens_num_type <= 2,
          "expert_tokens_num_type: {} is none of 0, 1 and 2", args.expert_tokens_num_type);
  require(args.row_idx_type == 0 || args.row_idx_type == 1, "row_idx_type: {} is neither 0 nor 1", args.row_idx_type);
  require(args.drop_pad_mode == 0 || args.drop_pad_mode == 1, "drop_pad_mode: {} is neither 0 nor 1",
          args.drop_pad_mode);
  expect_quantization(args, sizes);
  if (args.drop_pad_mode == 0) {
    sizes.rows = args.active_num < 1 ? sizes.slots() : std::min(args.active_num, sizes.slots());
    return sizes;
  }
  require(sizes.experts() == args.expert_num, "active_expert_range: drop_pad_mode 1 takes all {} experts, got [{}, {})",
          args.expert_num, sizes.first, sizes.end);
  require(args.row_idx_type == 0, "row_idx_type: drop_pad_mode 1 goes with 0, got {}", args.row_idx_type);
  constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
  require(args.expert_capacity >= 1 && args.expert_capacity <= most_rows / args.expert_num,
          "expert_capacity: {} is outside [1, {}]", args.expert_capacity, most_rows / args.expert_num);
  sizes.capacity = args.expert_capacity;
  sizes.rows = args.expert_num * sizes.capacity;
  return sizes;
}

std::int64_t codes_per_byte(const mx_quantize::Args& rules) { return rules.format.bits() == 4 ? 2 : 1; }

/// [R, n] as [R, n, 1]: rows may be apart.
TensorView with_inner(TensorView view) {
  view.shape[2] = view.stride[2] = 1;
  view.rank = 3;
  return view;
}

void quantize_mx(Steps& steps, const MoeInitRoutingV2Args& args, const Sizes& sizes, const TensorView& index,
                 const TensorView& row_ends, mx_quantize::Args rules) {
  rules.x = with_inner(args.x);
  rules.y = reshaped(args.expanded_x, {sizes.rows, sizes.hidden / codes_per_byte(rules), 1});
  rules.scale = reshaped(args.expanded_scale, {sizes.rows, args.expanded_scale.shape[1] / 2, 1, 2});
  rules.index = index;
  rules.divisor = static_cast<std::int32_t>(std::max<std::int64_t>(sizes.top_k, 1));
  rules.row_ends = row_ends;
  rules.rows_per_expert = sizes.capacity;
  steps.run(rules);
}

void move_rows(Steps& steps, const MoeInitRoutingV2Args& args, const Sizes& sizes, const TensorView& index,
               const TensorView& row_ends) {
  if (const std::optional<mx_quantize::Args> rules = mx_rules(args.quant_mode))
    return quantize_mx(steps, args, sizes, index, row_ends, *rules);
  const auto divisor = static_cast<std::int32_t>(std::max<std::int64_t>(sizes.top_k, 1));
  const TensorView out = reshaped(args.expanded_x, {sizes.rows, sizes.hidden});
  if (args.quant_mode == -1) {
    steps.run(gather_rows::Args{args.x, index, divisor, row_ends, sizes.capacity, out});
    if (!args.scale.present()) return;
    steps.run(gather_rows::Args{reshaped(args.scale, {sizes.tokens, 1}), index, divisor, row_ends, sizes.capacity,
                                reshaped(args.expanded_scale, {sizes.rows, 1})});
    return;
  }
  quantize_rows::Args quantize;
  quantize.x = args.x;
  quantize.row_ends = row_ends;
  quantize.rows_per_expert = sizes.capacity;
  quantize.q = out;
  quantize.index = index;
  quantize.divisor = divisor;
  if (args.quant_mode == 0) {
    quantize.scheme = quantize_rows::Scheme::static_f16;
    quantize.scale = args.scale;
    quantize.offset = args.offset;
  } else {
    quantize.scale = args.expanded_scale;
    quantize.smooth = args.scale;
    if (args.rounding == RoutingRounding::general_template)
      quantize.rounding = quantize_rows::Rounding::divide_ties_away;
  }
  steps.run(quantize);
}

void compose(Steps& steps, const MoeInitRoutingV2Args& args) {
  const Sizes sizes = sizes_of(args);
  const bool dropless = sizes.capacity == 0;
  const auto experts = static_cast<std::int32_t>(sizes.experts());
  expert_sort::Args sort;
  sort.ids = args.expert_idx;
  sort.first_expert = static_cast<std::int32_t>(sizes.first);
  sort.end_expert = sort.total_experts = static_cast<std::int32_t>(sizes.end);
  sort.rows_per_expert = sizes.capacity;
  sort.may_drop = true;
  sort.row_ends = steps.scratch(DType::i32, {experts});
  if (args.expert_tokens_num_flag) sort.counts = steps.scratch(DType::i32, {experts});
  sort.sorted_slots = args.row_idx_type == 1 ? args.expanded_row_idx
                                             : steps.scratch(DType::i32, {dropless ? sizes.slots() : sizes.rows});
  if (args.row_idx_type == 0) sort.slot_rows = args.expanded_row_idx;
  sort.scratch = steps.scratch_bytes(expert_sort::scratch_bytes(sizes.slots(), experts, steps.caps()));
  steps.run(sort);

  if (!dropless) {
    steps.zero(args.expanded_x);
    if (args.expanded_scale.present()) steps.zero(args.expanded_scale);
  }
  move_rows(steps, args, sizes, sort.sorted_slots.rows(0, sizes.rows), sort.row_ends);
  if (!args.expert_tokens_num_flag) return;
  const auto kind = dropless ? static_cast<group_list::Kind>(args.expert_tokens_num_type) : group_list::Kind::counts;
  steps.run(group_list::Write{{}, sort.counts, kind, sort.first_expert, args.expert_tokens});
}

}  // namespace

void infer(MoeInitRoutingV2Args& args) {
  const Sizes sizes = sizes_of(args);
  const std::optional<mx_quantize::Args> mx = mx_rules(args.quant_mode);
  const DType dtype = mx ? DType::u8 : args.quant_mode == -1 ? args.x.dtype : DType::i8;
  const std::int64_t width = mx ? sizes.hidden / codes_per_byte(*mx) : sizes.hidden;
  if (sizes.capacity == 0)
    set_shape(args.expanded_x, dtype, {sizes.rows, width});
  else
    set_shape(args.expanded_x, dtype, {args.expert_num, sizes.capacity, width});
  set_shape(args.expanded_row_idx, DType::i32, {sizes.slots()});
  args.expert_tokens.rank = 0;
  args.expanded_scale.rank = 0;
  if (args.expert_tokens_num_flag && sizes.capacity == 0 && args.expert_tokens_num_type == 2)
    set_shape(args.expert_tokens, DType::i64, {args.expert_num, 2});
  else if (args.expert_tokens_num_flag)
    set_shape(args.expert_tokens, DType::i64, {sizes.experts()});
  if (args.quant_mode == 1 || (args.quant_mode == -1 && args.scale.present()))
    set_shape(args.expanded_scale, DType::f32, {sizes.rows});
  if (mx) set_shape(args.expanded_scale, DType::u8, {sizes.rows, (sizes.hidden + 63) / 64 * 2});
}

std::uint64_t workspace_bytes(const MoeInitRoutingV2Args& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const MoeInitRoutingV2Args& args) {
  const auto rows = static_cast<std::uint64_t>(args.expanded_x.elements());
  return {rows * size_bytes(args.x.dtype) + args.expanded_x.size_bytes() + 2 * args.expert_idx.size_bytes() +
              args.expert_tokens.size_bytes() + args.expanded_scale.size_bytes(),
          args.quant_mode == -1 ? 0 : 2 * rows};
}

void moe_init_routing_v2(StreamView stream, const MoeInitRoutingV2Args& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
