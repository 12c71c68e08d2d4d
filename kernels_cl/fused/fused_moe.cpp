#include <moecl/fused_moe.hpp>

#include <algorithm>
#include <array>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/fused/fused_moe_args.h"
#include "kernels_cl/fused/grid_barrier.hpp"
#include "kernels_cl/fused/router.hpp"
#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "kernels_cl/gemm/nvidia/code_step.h"
#include "kernels_cl/quantize/quantize_groups.hpp"
#include "kernels_cl/routing/expert_sort.hpp"
#include "kernels_cl/routing/gating_top_k.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource fused_moe;
}

namespace moecl::fused_moe {
namespace {

constexpr std::int64_t panel = PackedWeights::panel_columns, tile_panels = 2;
constexpr const char *nv_sm80 = "nv_sm80", *nv_sm90a = "nv_sm90a", *t0 = "t0";

bool quantizes(const Args& args) { return args.tokens.x.present(); }
bool has_codes(const Args& args) { return bits(args.gate_up.weights.type) <= 8; }

/// The most tokens of a launch. Scales of codes, and also scales of rows, take registers: fewer rows fit beside them.
constexpr std::int64_t most_plain_tokens = 64;
std::int64_t most_tokens(const Args& args) { return !has_codes(args) ? most_plain_tokens : quantizes(args) ? 16 : 32; }

/// Whether warp groups (wgmma) can make both products: they read codes from local memory.
bool is_of_warp_groups(const Args& args) {
  const auto reads = [](const grouped_gemm::Args& product) {
    return grouped_gemm::is_f8(product.a.dtype) && product.weights.layout == PanelLayout::k_major;
  };
  return reads(args.gate_up) && reads(args.down);
}
const char* select(const Args& args, const Config& config, const DeviceCaps& caps) {
  for (const char* variant : {nv_sm80, nv_sm90a, t0})
    if (config.variant == variant) return variant;
  return caps.nv_sm90a && is_of_warp_groups(args) ? nv_sm90a : nv_sm80;
}
bool has_tensor_cores(const Config& config) { return config.variant != t0; }

/// The key by which a device remembers that a variant does not build.
std::string failing(std::string_view variant) { return fmt::format("fused_moe/{}", variant); }

/// Rows of a tile. All rows of an expert are one tile.
std::int64_t tile_rows_for(std::int64_t tokens) { return tokens <= 16 ? 16 : tokens <= 32 ? 32 : 64; }

/// Bytes of a row in a stage of tensor_tile.clh.
std::int64_t step_bytes(std::int64_t tile_rows, const grouped_gemm::Args& product) {
  constexpr std::int64_t line_bytes = 128;
  return line_bytes * CODE_STEP_LINES(tile_rows, size_bytes(product.a.dtype), bits(product.weights.type));
}
/// Bytes of a stage: one K-step of the rows and of the panels.
std::uint64_t stage_bytes(std::int64_t tile_rows, const grouped_gemm::Args& product) {
  const std::int64_t bytes = step_bytes(tile_rows, product),
                     step_k = bytes / static_cast<std::int64_t>(size_bytes(product.a.dtype));
  return static_cast<std::uint64_t>(tile_rows * bytes + tile_panels * panel * step_k * bits(product.weights.type) / 8);
}

/// Number of K-steps of a product, a stage each.
std::int64_t steps_of(std::int64_t tile_rows, const grouped_gemm::Args& product) {
  const std::int64_t row_bytes = product.weights.k * static_cast<std::int64_t>(size_bytes(product.a.dtype));
  return quotient_up(row_bytes, step_bytes(tile_rows, product));
}

/// How a launch is divided: lanes, tiles, stages, work-groups, slices of K and local memory.
struct Shape {
  const char* variant;
  expert_sort::Lanes lanes;
  std::int64_t tile_rows, stages, tile_slots, token_block, groups, down_slices;
  std::uint64_t routing_bytes, local_bytes;

  Shape(const Args& args, const RouterSpec& spec, const Config& config, const DeviceCaps& caps)
      : variant(select(args, config, caps)),
        lanes(tensor_cores() ? expert_sort::Lanes{128, 4} : expert_sort::Lanes{1}),
        tile_rows(tile_rows_for(tokens_of(args))),
        tile_slots((tile_rows * std::max(spec.top_k, 1) + 3) / 4 * 4),
        token_block(router::token_block(tokens_of(args))),
        routing_bytes(
            gating_top_k::local_bytes(gating_top_k::team_words(experts_of(args), spec), lanes.count, lanes.teams)) {
    constexpr std::uint64_t small_bytes = 320;
    const std::uint64_t logits_bytes = router::sums_bytes(tokens_of(args));
    const std::uint64_t order_bytes =
        lanes.local_bytes(experts_of(args)) + static_cast<std::uint64_t>(tile_slots) * sizeof(std::int32_t);
    const auto sums_bytes = static_cast<std::uint64_t>(tile_rows * (tile_panels * panel + 4)) * sizeof(float);
    const auto rows_bytes = static_cast<std::uint64_t>(2 * tile_slots + 2 * experts_of(args)) * sizeof(std::int16_t);
    const std::uint64_t beside_bytes = sums_bytes + rows_bytes + small_bytes,
                        of_stage = stage_bytes(tile_rows, args.gate_up);
    // Bytes in flight to a work-group, whatever the size of a stage: more where it has a compute unit to itself.
    constexpr std::uint64_t bytes = 80 << 10, bytes_alone = 160 << 10;
    const bool alone = tile_rows <= 16 && !has_codes(args) && bytes_alone + beside_bytes <= caps.static_local_mem_bytes;
    stages = static_cast<std::int64_t>((alone ? bytes_alone : bytes) / of_stage);
    const std::uint64_t stages_bytes = tensor_cores() ? static_cast<std::uint64_t>(stages) * of_stage : 0;
    local_bytes = std::max({stages_bytes, logits_bytes, routing_bytes, order_bytes}) + beside_bytes;
    groups = config.groups > 0 ? config.groups : tensor_cores() ? resident_groups(args, caps) : 1;
    down_slices = most_down_slices(tokens_of(args), args.down.weights.n, spec.top_k, config, caps);
    const std::int64_t steps = steps_of(tile_rows, args.down);
    down_slices = std::clamp<std::int64_t>(steps / (config.down_slices > 0 ? 1 : 8), 1, down_slices);
    down_slices = quotient_up(steps, quotient_up(steps, down_slices));  // every slice has steps
  }

  bool tensor_cores() const { return variant != t0; }
  static std::int64_t tokens_of(const Args& args) { return args.router.a.shape[0]; }
  static std::int64_t experts_of(const Args& args) { return args.gate_up.weights.experts; }
  /// An upper bound of `groups` for all operands.
  static std::int64_t most_groups(const Config& config, const DeviceCaps& caps) {
    return config.groups > 0 ? config.groups : has_tensor_cores(config) ? 2 * std::int64_t{caps.compute_units} : 1;
  }
  /// The most slices of the second product's K, so that one token has parts for all compute units. All token counts
  /// with tiles of sixteen rows have the same number: a token's results then do not depend on the other tokens.
  static std::int64_t most_down_slices(std::int64_t tokens, std::int64_t hidden, std::int64_t top_k,
                                       const Config& config, const DeviceCaps& caps) {
    if (!has_tensor_cores(config)) return 1;
    if (config.down_slices > 0) return config.down_slices;
    if (tokens > 16) return 1;
    const std::int64_t tile_columns = tile_panels * panel,
                       parts = std::max<std::int64_t>(top_k * quotient_up(hidden, tile_columns), 1);
    return std::clamp<std::int64_t>(2 * std::int64_t{caps.compute_units} / parts, 1, 4);
  }

 private:
  /// Work-groups that are resident together. With few rows a compute unit has one: it reads 16-bit weights as fast as
  /// two, and passes the grid barrier sooner. With codes it has two, where there are tiles for both: while one
  /// dequantizes codes, the other one reads.
  std::int64_t resident_groups(const Args& args, const DeviceCaps& caps) const {
    constexpr std::uint64_t of_driver = 1024;  // local memory that the driver takes of each work-group
    const std::int64_t active = std::min(experts_of(args), args.gating.ids.elements()),
                       tiles = active * PackedWeights::panels(args.gate_up.weights.n) / tile_panels;
    const bool two = (tile_rows > 16 || (has_codes(args) && tiles > caps.compute_units)) &&
                     2 * (local_bytes + of_driver) <= caps.static_local_mem_bytes + of_driver;
    return std::int64_t{caps.compute_units} * (two ? 2 : 1);
  }
};

/// The scratch: parts of the logits, stamps of the work-groups, and the second product's rows for each slice of K.
struct Scratch {
  std::uint64_t parts_bytes, words_bytes, rows_bytes;

  Scratch(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, std::int64_t groups, std::int64_t down_slices,
          std::int64_t top_k)
      : parts_bytes(aligned(router::parts_bytes(tokens, experts, hidden))),
        words_bytes(aligned(static_cast<std::uint64_t>(groups) * 8)),
        rows_bytes(down_slices == 1 ? 0
                                    : aligned(static_cast<std::uint64_t>(down_slices * tokens * top_k * hidden) * 4)) {}
  std::uint64_t total() const { return parts_bytes + words_bytes + rows_bytes; }

 private:
  static std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }
};

using grouped_gemm::column_stride, grouped_gemm::is_aligned_to_16_bytes, grouped_gemm::is_same;

/// Whether all rows that a launch writes or sums up can be accessed four columns at a time.
bool has_fours(const Args& args) {
  const TensorView& shared = args.combine.shared;
  return moecl::has_fours(args.gate_up.out) && moecl::has_fours(args.down.out) && moecl::has_fours(args.combine.out) &&
         (!shared.present() || moecl::has_fours(shared));
}
/// Whether columns or rows have scales, which the epilogue applies to the sums.
bool has_scales(const Args& args) {
  return args.gate_up.weight_scale.present() || args.down.weight_scale.present() || args.gate_up.a_scale.present();
}

/// Why the steps' operands are not connected as those of one layer; empty when they are.
std::string unconnected(const Args& args) {
  const auto connects = [](const quantize_groups::Args& rows, const TensorView& from, const grouped_gemm::Args& to) {
    return rows.x.present() ? is_same(rows.x, from) && is_same(rows.q, to.a) && is_same(rows.scale, to.a_scale) &&
                                  rows.group == to.a_group
                            : is_same(from, to.a);
  };
  if (!connects(args.tokens, args.router.a, args.gate_up)) return "router and experts have other tokens";
  if (!is_same(args.router.out, args.gating.logits)) return "logits: not the router's";
  if (args.gating.table.experts.present()) return "gating: a table says the experts, nothing is chosen";
  if (!connects(args.activated, args.gate_up.out, args.down)) return "the second product is of other rows";
  if (!is_same(args.down.out, args.combine.rows) || !is_same(args.gating.weights, args.combine.weights))
    return "the sum is of other rows or weights";
  return {};
}

/// Why one program cannot multiply by the weights of both products; empty when it can.
std::string unlike(const PackedWeights& first, const PackedWeights& second) {
  if (first.type != second.type) return fmt::format("weights are {} and {}", name(first.type), name(second.type));
  if (first.layout == PanelLayout::k_words) return "weights stand in words of K";
  if (first.layout != second.layout)
    return fmt::format("weights are {} and {}", name(first.layout), name(second.layout));
  if (first.group_index.present() || second.group_index.present()) return "groups of K stand in any order";
  if (first.grouped() != second.grouped() || first.zero.present() != second.zero.present() ||
      (first.grouped() && (first.group != second.group || first.scale.dtype != second.scale.dtype)))
    return "the weights of both products have other scales";
  return {};
}

/// Why the launch cannot make the rows that both products multiply; empty when it can.
std::string unsupported_rows(const Args& args, DType dtype) {
  const grouped_gemm::Args &first = args.gate_up, &second = args.down;
  if (!quantizes(args)) {
    for (const grouped_gemm::Args* product : {&first, &second})
      if (product->a.dtype != dtype || product->a_scale.present()) return "rows are codes that nobody makes";
    return {};
  }
  const quantize_groups::Args &tokens = args.tokens, &activated = args.activated;
  if (first.a.dtype != second.a.dtype || first.a_group != second.a_group ||
      first.a_scale.dtype != second.a_scale.dtype || !quantize_groups::same_rules(tokens, activated))
    return "the rows of both products become other codes";
  for (const quantize_groups::Args* rows : {&tokens, &activated}) {
    if (size_bytes(rows->q.dtype) != 1 || bits(rows->format) != 8) return "rows become no codes of 8 bits";
    if (quantize_groups::has_scale(*rows) || rows->zero.present() || rows->index.present())
      return "rows share a scale, or have zero points";
    if (!has_fours(rows->x) || !has_fours(rows->q)) return "rows to quantize are no fours of columns";
  }
  return {};
}

std::string unsupported(const Args& args) {
  const DType dtype = args.router.a.dtype;
  if (std::string reason = router::reject(args.router); !reason.empty()) return reason;
  if (std::string reason = unsupported_rows(args, dtype); !reason.empty()) return reason;
  for (const grouped_gemm::Args* product : {&args.gate_up, &args.down}) {
    if (product->sum_bias.present() || product->k_ends.present()) return "sums have integer biases or windows of K";
    if (product->quantization.x.present()) return "codes are made between the products, not by the first";
    if (product->rows_per_expert != 0 || product->first_expert != 0) return "experts are batched or in segments";
  }
  if (std::string reason = unlike(args.gate_up.weights, args.down.weights); !reason.empty()) return reason;
  if (!args.gate_up.activation || args.gate_up.out.dtype != (quantizes(args) ? DType::f32 : dtype))
    return "the first product is not activated";
  if (args.down.activation || args.down.out.dtype != DType::f32) return "the second product is not plain f32";
  const combine::Args& combine = args.combine;
  if (combine.column_slots || combine.slot_ends.present() || combine.bias.present() || combine.residual.present() ||
      combine.skip_zero_weights || combine.active.present() || combine.shared_scale != 1 ||
      combine.rows_scale.present())
    return "the sum has more than weights and a shared part";
  return {};
}

/// What a product reads: a, its scales, the weights, scales and zero points of their groups, scales and biases of
/// columns.
std::array<TensorView, 7> operands(const grouped_gemm::Args& product) {
  const PackedWeights& weights = product.weights;
  return {product.a, product.a_scale, weights.view(), weights.scale, weights.zero, product.weight_scale, product.bias};
}

fused_product kernel_args(const grouped_gemm::Args& product, std::int64_t tile_rows, std::int64_t slices,
                          std::int64_t groups) {
  const PackedWeights& weights = product.weights;
  const std::int64_t panels = PackedWeights::panels(weights.n),
                     column_tiles = std::max<std::int64_t>(quotient_up(panels, tile_panels), 1);
  return {.a_first = first_element(product.a),
          .a_scale_first = first_element(product.a_scale),
          .weights_first = first_element(weights.view()),
          .group_scale_first = first_element(weights.scale),
          .group_zero_first = first_element(weights.zero),
          .scale_first = first_element(product.weight_scale),
          .bias_first = first_element(product.bias),
          .a_stride = product.a.stride[0],
          .a_scale_stride = product.a_scale.stride[0],
          .scale_stride = product.weight_scale.stride[0],
          .scale_column_stride = column_stride(product.weight_scale),
          .bias_stride = product.bias.stride[0],
          .bias_column_stride = column_stride(product.bias),
          .scale_dtype = any_dtype(product.weight_scale.dtype),
          .bias_dtype = any_dtype(product.bias.dtype),
          .groups = int_of(weights.groups()),
          .n = int_of(weights.n),
          .k = int_of(weights.k),
          .cut = {.column_tiles = int_of(column_tiles),
                  .slices = int_of(slices),
                  .slice_steps = int_of(quotient_up(steps_of(tile_rows, product), slices)),
                  .jump_experts = int_of(groups / column_tiles),
                  .jump_columns = int_of(groups % column_tiles)}};
}

/// All but the places in the scratch, the second product's rows and the grid barrier, which `enqueue` adds.
fused_moe_args kernel_args(const Args& args, const RouterSpec& spec, std::int64_t groups, std::int64_t down_slices) {
  const Activation& activation = *args.gate_up.activation;
  const combine::Args& sum = args.combine;
  const std::int64_t tile_rows = tile_rows_for(args.router.a.shape[0]);
  return {.gating = gating_top_k::kernel_args(args.gating, spec),
          .router = router::kernel_args(args.router),
          .gate_up = kernel_args(args.gate_up, tile_rows, 1, groups),
          .down = kernel_args(args.down, tile_rows, down_slices, groups),
          .grid = {},
          .activated_first = first_element(args.gate_up.out),
          .rows_first = 0,
          .shared_first = first_element(sum.shared),
          .shared_gate_first = first_element(sum.shared_gate),
          .out_first = first_element(sum.out),
          .fault_first = first_element(args.fault),
          .activated_stride = args.gate_up.out.stride[0],
          .rows_stride = 0,
          .shared_stride = sum.shared.stride[0],
          .shared_gate_stride = sum.shared_gate.stride[0],
          .out_stride = sum.out.stride[0],
          .alpha = activation.alpha,
          .limit = activation.effective_limit(),
          .up_bias = activation.bias,
          .pad = 0,
          .rules = quantizes(args) ? quantize_groups::rules_of(args.tokens) : quantize_rules{}};
}

}  // namespace

const std::vector<grouped_gemm::Variant>& variants() {
  static const auto* list = new std::vector<grouped_gemm::Variant>{
      {nv_sm80, "NVIDIA tensor cores: 16, 32 or 64 x 128 sums, one or two work-groups a compute unit"},
      {nv_sm90a, "the same on Hopper's by warp groups, where rows and weights are f8"},
      {t0, "one work-item"}};
  return *list;
}

std::uint64_t scratch_bytes(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, std::int64_t top_k,
                            const Config& config, const DeviceCaps& caps) {
  if (tokens > most_plain_tokens) return 0;
  const std::int64_t slices = Shape::most_down_slices(tokens, hidden, top_k, config, caps);
  return Scratch(tokens, hidden, experts, Shape::most_groups(config, caps), slices, top_k).total();
}

std::string reject(const Args& args, const RouterSpec& spec, const Config& config, const Device& device) {
  const DeviceCaps& caps = device.caps;
  const std::string_view variant = select(args, config, caps);
  if (!config.variant.empty() && config.variant != variant)
    return fmt::format("there is no variant '{}'", config.variant);
  const bool tensor_cores = has_tensor_cores(config);
  if (tensor_cores && caps.nv_compute_capability < 80) return "the device is no NVIDIA GPU of compute capability 8.0";
  if (variant == nv_sm90a && !caps.nv_sm90a) return "the device's driver does not build for sm_90a";
  if (variant == nv_sm90a && !is_of_warp_groups(args)) return "warp groups multiply f8 by panels in k_major";
  if (tensor_cores && grouped_gemm::is_f8(args.gate_up.a.dtype) && caps.nv_compute_capability < 89)
    return "the device does not multiply f8";
  // llvmpipe (Mesa 22.3), which splits vectors, gives wrong results: its loops end after a step. The cause is unknown.
  if (!tensor_cores && caps.preferred_float_width < 4)
    return fmt::format("t0 needs float vectors of at least 4 lanes, the device prefers {}", caps.preferred_float_width);
  if (device.failed_variants->contains(failing(variant))) return "its program does not build on this device";
  const std::int64_t tokens = args.router.a.shape[0];
  if (const std::int64_t most = most_tokens(args); tokens > most)
    return fmt::format("{} tokens are more than {}", tokens, most);
  if (args.gate_up.weights.experts != args.gating.logits.shape[1] + spec.fused_shared_experts)
    return "not all experts are here";
  if (std::string reason = unsupported(args); !reason.empty()) return reason;
  for (const grouped_gemm::Args* product : {&args.gate_up, &args.down})
    if (tensor_cores && !grouped_gemm::is_tensor_core_product(*product) && !grouped_gemm::is_code_product(*product))
      return fmt::format("tensor cores do not multiply {} by such {} weights", name(product->a.dtype),
                         name(product->weights.type));
  if (args.gating.ids.elements() > MOST_FUSED_SLOTS)
    return fmt::format("{} slots are more than {}", args.gating.ids.elements(), int{MOST_FUSED_SLOTS});
  const auto reject_codes = [&](const quantize_groups::Args& rows) {
    return quantizes(args) ? quantize_groups::reject(rows, {}, device) : std::string();
  };
  for (const auto& [step, reason] : {std::pair{"router", grouped_gemm::reject_operands(args.router)},
                                     {"gating", gating_top_k::reject(args.gating, spec, {}, device)},
                                     {"gate_up", grouped_gemm::reject_operands(args.gate_up)},
                                     {"down", grouped_gemm::reject_operands(args.down)},
                                     {"combine", combine::reject(args.combine, {}, device)},
                                     {"tokens", reject_codes(args.tokens)},
                                     {"activated", reject_codes(args.activated)}})
    if (!reason.empty()) return fmt::format("{}: {}", step, reason);
  const Shape shape(args, spec, config, caps);
  if (static_cast<std::size_t>(shape.lanes.count) > caps.max_work_group_size)
    return fmt::format("{} lanes are more than a work-group of the device has", shape.lanes.count);
  if (shape.local_bytes > caps.static_local_mem_bytes)
    return fmt::format("{} bytes of local memory are needed, the device has {}", shape.local_bytes,
                       caps.static_local_mem_bytes);
  return {};
}

namespace {

std::string options_of(const Args& args, const RouterSpec& spec, const Shape& shape, const DeviceCaps& caps) {
  const TensorView &x = args.router.a, &out = args.combine.out, &shared = args.combine.shared;
  const Activation& activation = *args.gate_up.activation;
  std::string options = gating_top_k::options(args.gating);
  if (quantizes(args)) {
    const quantize_groups::Lanes lanes(shape.lanes.count, shape.lanes.count / shape.lanes.teams, caps);
    options += " -DQUANTIZES=1 " + quantize_groups::options(args.tokens, lanes, caps);
  } else {
    options += " " + shape.lanes.options() + shuffle_option(shape.lanes.count, caps) + dtype_option("X_DTYPE", x);
  }
  options += fmt::format(
      " -DTENSOR_CORES={:d} -DGPU_SCOPE={:d} -DTILE_ROWS={} -DROW_TILES={} -DSTAGES={} -DROUTING_BYTES={} "
      "-DMOST_SLOTS={} -DTOKEN_BLOCK={} -DOUT_FOURS={:d} -DCODES={:d} -DWARP_GROUPS={:d} -DHAS_SCALES={:d} "
      "-DA_ALIGNED={:d}",
      shape.tensor_cores(), caps.nv_compute_capability >= 70, shape.tile_rows,
      has_codes(args) && x.shape[0] <= 8 ? 1 : shape.tile_rows / 8, shape.stages, shape.routing_bytes, shape.tile_slots,
      shape.token_block, has_fours(args), has_codes(args), shape.variant == nv_sm90a, has_scales(args),
      is_aligned_to_16_bytes(args.gate_up.a) && is_aligned_to_16_bytes(args.down.a));
  options += fmt::format(" -DEXPERTS={} -DFUNCTION={} -DGATED={:d} -DGATE_IS_RIGHT={:d}", args.gate_up.weights.experts,
                         name(activation.function), activation.gated, activation.gate_is_right);
  options += gating_top_k::rule_options(args.gating, spec, shape.lanes.count / shape.lanes.teams, caps);
  options += dtype_option("OUT_DTYPE", args.gate_up.out) +
             dtype_option("SHARED_DTYPE", shared.present() ? shared : out) + dtype_option("SUM_DTYPE", out);
  return options + grouped_gemm::operand_options(args.gate_up);
}

}  // namespace

Plan plan(const Args& args, const RouterSpec& spec, const Config& config, const Device& device) {
  for (const std::string& reason : {reject(args, spec, config, device), unconnected(args)})
    require(reason.empty(), "fused_moe: {}", reason);
  const TensorView& x = args.router.a;
  const PackedWeights& weights = args.gate_up.weights;
  const Shape shape(args, spec, config, device.caps);
  const Scratch scratch(x.shape[0], x.shape[1], weights.experts, shape.groups, shape.down_slices, spec.top_k);
  require(args.scratch.size_bytes >= scratch.total(), "fused_moe: scratch: {} bytes are needed, got {}",
          scratch.total(), args.scratch.size_bytes);
  require(args.scratch.offset_bytes % 16 == 0, "fused_moe: scratch: byte offset {} is no multiple of 16",
          args.scratch.offset_bytes);
  const auto local = static_cast<std::size_t>(shape.lanes.count);
  return {.launch = {shape.variant,
                     options_of(args, spec, shape, device.caps),
                     {static_cast<std::size_t>(x.shape[0] == 0 ? 0 : shape.groups) * local, 1, 1},
                     {local, 1, 1},
                     fmt::format("{} top {} of {}[{}, {}, {}]", x.describe(), spec.top_k, name(weights.type),
                                 weights.experts, weights.n, weights.k),
                     cost(args)},
          .failing = failing(shape.variant),
          .groups = shape.groups,
          .parts_bytes = scratch.parts_bytes,
          .rows_first = scratch.parts_bytes + scratch.words_bytes,
          .down_slices = shape.down_slices,
          .patience = config.patience};
}

void enqueue(StreamView stream, const Plan& plan, const Args& args, const RouterSpec& spec, Submit submit) {
  const TensorView parts(args.scratch.slice(0, plan.parts_bytes), DType::f32,
                         {static_cast<std::int64_t>(plan.parts_bytes / sizeof(float))}),
      words(args.scratch.slice(plan.parts_bytes, static_cast<std::uint64_t>(plan.groups) * sizeof(std::uint64_t)),
            DType::i64, {plan.groups});
  fused_moe_args given = kernel_args(args, spec, plan.groups, plan.down_slices);
  given.router.parts_first = first_element(parts);
  given.grid = next_grid_barrier(words, plan.patience);
  const gating_top_k::Args& gating = args.gating;
  const combine::Args& sum = args.combine;
  const TensorView router_weights = args.router.weights.view();
  const TensorView &x = args.router.a, &router_bias = args.router.bias, &activated = args.gate_up.out;
  TensorView rows = args.down.out;
  if (plan.down_slices > 1) {
    const std::int64_t count = plan.down_slices * rows.shape[0], hidden = rows.shape[1];
    rows = TensorView(args.scratch.slice(plan.rows_first, static_cast<std::uint64_t>(count * hidden) * sizeof(float)),
                      DType::f32, {count, hidden});
  }
  given.rows_first = first_element(rows);
  given.rows_stride = rows.stride[0];
  const std::array<TensorView, 7> first = operands(args.gate_up), second = operands(args.down);
  const TensorView &gate_up_a = first[0], &gate_up_a_scale = first[1], &gate_up_weights = first[2],
                   &gate_up_group_scale = first[3], &gate_up_group_zero = first[4], &gate_up_scale = first[5],
                   &gate_up_bias = first[6];
  const TensorView &down_a = second[0], &down_a_scale = second[1], &down_weights = second[2],
                   &down_group_scale = second[3], &down_group_zero = second[4], &down_scale = second[5],
                   &down_bias = second[6];
  note_failure(stream, plan.failing, [&] {
    launch_planned(stream, source::fused_moe, "fused_moe", plan.launch, submit, x, router_weights, router_bias, parts,
                   gating.logits, gating.selection_bias, gating.finished, gating.ids, gating.weights, gating.scores,
                   gate_up_a, gate_up_a_scale, gate_up_weights, gate_up_group_scale, gate_up_group_zero, gate_up_scale,
                   gate_up_bias, activated, down_a, down_a_scale, down_weights, down_group_scale, down_group_zero,
                   down_scale, down_bias, rows, sum.shared, sum.shared_gate, sum.out, words, args.fault, given);
  });
}

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config, Submit submit) {
  enqueue(stream, plan(args, spec, config, *stream.device), args, spec, submit);
}

OperatorCost cost(const Args& args) {
  OperatorCost all;
  const auto of_codes = [&](const quantize_groups::Args& rows) {
    return quantizes(args) ? quantize_groups::cost(rows) : OperatorCost();
  };
  for (const OperatorCost& step : {of_codes(args.tokens), of_codes(args.activated), grouped_gemm::cost(args.router),
                                   gating_top_k::cost(args.gating), grouped_gemm::cost(args.gate_up),
                                   grouped_gemm::cost(args.down), combine::cost(args.combine)}) {
    all.bytes += step.bytes;
    all.flops += step.flops;
  }
  return all;
}

}  // namespace moecl::fused_moe
