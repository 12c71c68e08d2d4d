#include <moecl/expert_sort.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/group_list.hpp>

#include <algorithm>
#include <limits>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"
#include "host/npu/row_codes.hpp"

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

/// How quant_mode quantizes; none if it does not.
std::optional<RowCodes> codes_of(const MoeInitRoutingV2Args& args) {
  using quantize_rows::Codes;
  using quantize_rows::Rounding;
  const std::int64_t mode = args.quant_mode;
  const auto e4m3_if = [](bool yes) { return yes ? Codes::e4m3 : Codes::e5m2; };
  RowCodes how;
  switch (mode) {
    case 0:
      how.rows.scheme = quantize_rows::Scheme::static_f16;
      how.rows.scale = args.scale;
      how.rows.offset = args.offset;
      return how;
    case 1:
    case 13:
      how.int4 = mode == 13;
      if (mode == 1 && args.rounding == RoutingRounding::general_template)
        how.rows.rounding = Rounding::divide_ties_away;
      return how;
    case 2:
    case 3:
    case 16:
    case 17:
      how = mx_rows(mode % 2 == 0 ? fp8_e5m2 : fp8_e4m3fn, mx_quantize::ScaleRule::ceil_ratio);
      how.blocks->least_scale = 1;  // 2^-126
      if (mode >= 16) how.blocks->least_amax = 1e-4F;
      return how;
    case 9:
      return mx_rows(fp4_e2m1, mx_quantize::ScaleRule::floor_amax);
    case 4:
    case 5:
    case 14:
    case 15:
      how = float_rows(e4m3_if(mode % 2 == 1), Rounding::divide, 128);
      how.rows.power_of_two = true;
      if (mode >= 14) how.rows.least_amax = 1e-4F;
      return how;
    case 11:
    case 12:
      how = float_rows(e4m3_if(mode == 12), Rounding::divide, 128);
      how.scales_align = 2;
      return how;
    case 8:
      return float_rows(Codes::hif8, Rounding::divide);
    case 6:
    case 7:
      how = float_rows(Codes::hif8, Rounding::divide);
      how.rows.scheme = quantize_rows::Scheme::given;
      if (mode == 7) how.rows.scale = args.scale;
      return how;
    default:
      return std::nullopt;
  }
}

bool has_smooth(std::int64_t quant_mode) { return quant_mode == 1 || quant_mode == 13; }

void expect_scale(const MoeInitRoutingV2Args& args, const Sizes& sizes) {
  require(args.quant_mode == 0 || args.quant_mode == 7 || !args.offset.present(),
          "offset: only quant_mode 0 takes one, got {}", args.offset);
  if (args.quant_mode == 0 || args.quant_mode == 7) {
    expect_tensor(args.scale, "scale", DType::f32, {1});
    if (args.quant_mode == 0) expect_tensor(args.offset, "offset", DType::f32, {1});
  } else if (args.scale.present() && args.quant_mode == -1) {
    const bool bytes =
        args.scale.dtype == DType::u8 && args.scale.contiguous() && args.scale.rank >= 2 && args.scale.rank <= 3;
    require((bytes && args.scale.shape[0] == sizes.tokens) || args.scale.rank == 1,
            "scale: expected f32[{}], or of codes u8[{}, S], got {}", sizes.tokens, sizes.tokens, args.scale);
    if (!bytes) expect_tensor(args.scale, "scale", DType::f32, {sizes.tokens});
  } else if (args.scale.present() && has_smooth(args.quant_mode)) {
    const bool shared = args.scale.rank == 2 && args.scale.shape[0] == 1;
    expect_tensor(args.scale, "scale", DType::f32, {shared ? 1 : sizes.experts(), sizes.hidden});
  } else {
    require(!args.scale.present(), "scale: quant_mode {} takes none, got {}", args.quant_mode, args.scale);
  }
}

void expect_quantization(const MoeInitRoutingV2Args& args, const Sizes& sizes) {
  const std::optional<RowCodes> codes = codes_of(args);
  require(args.quant_mode == -1 || codes, "quant_mode: {} is none of -1 to 9 and 11 to 17", args.quant_mode);
  if (codes) codes->check(args.x);
  expect_scale(args, sizes);
}

Sizes sizes_of(const MoeInitRoutingV2Args& args) {
  require(args.x.rank == 2 && is_movable(args.x.dtype), "x: expected f32, f16, bf16, i8 or u8 [N, H], got {}", args.x);
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

void bring_rows(Steps& steps, const MoeInitRoutingV2Args& args, const Sizes& sizes, MovedRows from) {
  const std::optional<RowCodes> codes = codes_of(args);
  const TensorView scale = args.expanded_scale;
  if (codes) {
    const TensorView out = reshaped(args.expanded_x, {sizes.rows, codes->width(sizes.hidden)});
    if (has_smooth(args.quant_mode)) from.smooth = args.scale;
    const bool pairs = scale.present() && scale.rank == 3;  // the scales of fp8 groups come in pairs
    return quantize_moved(steps, *codes, from, out,
                          pairs ? reshaped(scale, {scale.shape[0], 2 * scale.shape[1]}) : scale);
  }
  move_rows(steps, from, reshaped(args.expanded_x, {sizes.rows, sizes.hidden}));
  if (!args.scale.present()) return;
  const std::int64_t each = args.scale.elements() / std::max<std::int64_t>(sizes.tokens, 1);
  from.x = reshaped(args.scale, {sizes.tokens, sizes.tokens == 0 ? 1 : each});
  move_rows(steps, from, reshaped(scale, {sizes.rows, sizes.tokens == 0 ? 1 : each}));
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
  bring_rows(steps, args, sizes,
             {args.x,
              sort.sorted_slots.rows(0, sizes.rows),
              static_cast<std::int32_t>(std::max<std::int64_t>(sizes.top_k, 1)),
              sort.row_ends,
              sizes.capacity,
              {},
              {}});
  if (!args.expert_tokens_num_flag) return;
  const auto kind = dropless ? static_cast<group_list::Kind>(args.expert_tokens_num_type) : group_list::Kind::counts;
  steps.run(group_list::Write{{}, sort.counts, kind, sort.first_expert, args.expert_tokens});
}

}  // namespace

void infer(MoeInitRoutingV2Args& args) {
  const Sizes sizes = sizes_of(args);
  const std::optional<RowCodes> codes = codes_of(args);
  const DType dtype = codes ? codes->dtype() : args.x.dtype;
  const std::int64_t width = codes ? codes->width(sizes.hidden) : sizes.hidden;
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
  if (codes && codes->given()) return;
  std::vector<std::int64_t> scales = {sizes.rows};
  if (codes) {
    for (const std::int64_t each : codes->row_scales(sizes.hidden)) scales.push_back(each);
    if (codes->scales_align == 2) scales = {sizes.rows, scales.back() / 2, 2};
    set_shape(args.expanded_scale, codes->scale_dtype(), scales);
  } else if (args.scale.present()) {
    for (int d = 1; d < args.scale.rank; ++d) scales.push_back(args.scale.shape[d]);
    set_shape(args.expanded_scale, args.scale.dtype, scales);
  }
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
