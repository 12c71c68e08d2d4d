#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/common/stamps.hpp"
#include "kernels_cl/gemm/grouped_gemm_args.h"
#include "kernels_cl/gemm/tiles.hpp"
#include "kernels_cl/quantize/quantize_groups.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::grouped_gemm {
namespace {

/// Columns of gated output in a tile, half of its panels' columns. A tile quantizes whole groups of them; each warp has
/// 16. 0: the kernel does not quantize.
std::int64_t quantized_columns(const Kernel& kernel) { return kernel.quantizes ? tile_columns(kernel) / 2 : 0; }
/// Local memory of quantized_store.clh: for each row, the largest magnitude of each of eight warps, and three numbers
/// for each group's scale.
std::uint64_t quantization_bytes(const Kernel& kernel, std::int64_t group) {
  return static_cast<std::uint64_t>(kernel.tile_rows * (8 + quantized_columns(kernel) / group * 3) * 4);
}

std::string reject_fused_activation(const Args& args, const Activation& activation, const Kernel& kernel,
                                    const DeviceCaps& caps) {
  if (std::string reason = reject_activation(args, activation); !reason.empty()) return reason;
  if (!kernel.activates) return fmt::format("variant {}: has no activation", kernel.variant.name);
  if (const std::uint64_t needed = kernel.local_mem_bytes + (activation.gated ? kernel.gated_bytes : 0);
      needed > caps.static_local_mem_bytes)
    return fmt::format("activation: needs {} bytes of local memory, the device has {}", needed,
                       caps.static_local_mem_bytes);
  return {};
}

std::string reject_fused_codes(const Args& args, const quantize_groups::Args& next, const Kernel& kernel,
                               const Device& device) {
  using quantize_groups::ScaleRule;
  const std::int64_t columns = quantized_columns(kernel), group = quantize_groups::group_of(next);
  if (columns == 0) return fmt::format("variant {}: makes no codes", kernel.variant.name);
  if (!args.activation || !args.activation->gated || args.out.dtype != DType::f32)
    return "quantization: expected the f32 rows of a gated activation";
  if (!is_same(next.x, args.out) || next.x.shape != args.out.shape)
    return fmt::format("quantization: expected out, {}, as its x, got {}", args.out.describe(), next.x.describe());
  if (std::string reason = quantize_groups::reject(next, {}, device); !reason.empty()) return reason;
  const bool has_rule = next.rule == ScaleRule::ratio || next.rule == ScaleRule::power_of_two;
  if (!has_rule || next.quotient != quantize_groups::Quotient::divide || next.group_rows != 1 ||
      !std::isinf(next.most_amax) || !device.caps.correctly_rounded_divide)
    return "quantization: expected quotients by the largest magnitudes of single rows, without a limit, on a device "
           "that rounds division correctly";
  if (columns % group != 0 || group % 16 != 0)
    return fmt::format("quantization: expected groups of a multiple of 16 columns that divides {}, got {}", columns,
                       group);
  if (size_bytes(next.q.dtype) != 1 || !is_aligned(next.q, 2) || next.q.stride[1] != 1 || !next.scale.present() ||
      next.scale.stride[1] != 1 || next.index.present())
    return fmt::format(
        "quantization: expected codes of 8 bits from an even place on and scales, neither gathered, got "
        "{} and {}",
        next.q.describe(), next.scale.describe());
  const std::uint64_t needed = kernel.local_mem_bytes + quantization_bytes(kernel, group);
  if (needed > device.caps.static_local_mem_bytes)
    return fmt::format("quantization: needs {} bytes of local memory, the device has {}", needed,
                       device.caps.static_local_mem_bytes);
  return {};
}

/// Why a variant cannot multiply these operands on the device; empty if it can.
std::string reject_variant(const Kernel& kernel, const Args& args, const Device& device) {
  const DeviceCaps& caps = device.caps;
  const char* const variant = kernel.variant.name;
  if (kernel.work_items > caps.max_work_group_size || kernel.local_mem_bytes > caps.static_local_mem_bytes)
    return fmt::format("variant {}: needs work-groups of {} and {} bytes of local memory, the device has {} and {}",
                       variant, kernel.work_items, kernel.local_mem_bytes, caps.max_work_group_size,
                       caps.static_local_mem_bytes);
  if (args.activation)
    if (std::string reason = reject_fused_activation(args, *args.activation, kernel, caps); !reason.empty())
      return reason;
  if (args.quantization.x.present())
    if (std::string reason = reject_fused_codes(args, args.quantization, kernel, device); !reason.empty())
      return reason;
  if (args.scratch.offset_bytes % 16 != 0)
    return fmt::format("scratch: byte offset {} is no multiple of 16", args.scratch.offset_bytes);
  // Mesa's llvmpipe splits vectors into scalars and then needs minutes to compile the register tiles.
  if (kernel.min_float_width > caps.preferred_float_width)
    return fmt::format("variant {}: needs float vectors of at least {} lanes, the device prefers {}", variant,
                       kernel.min_float_width, caps.preferred_float_width);
  if (const Extension* needs = kernel.extension; needs != nullptr && !(needs->offered(caps) && needs->multiplies(args)))
    return fmt::format("variant {}: multiplies {}, got {} x {}", variant, needs->what, args.a.describe(),
                       name(args.weights.type));
  if (!reads(kernel, args))
    return fmt::format("variant {}: reads no {} panels of {}", variant, name(args.weights.layout),
                       name(args.weights.type));
  return {};
}

/// The variant that runs, and why it was chosen. Null: `why` says why none can run.
Choice decide(const Args& args, const Config& config, const Device& device) {
  if (std::string reason = reject_operands(args); !reason.empty()) return {nullptr, std::move(reason)};
  Choice choice = choose(args, config, device);
  if (choice.kernel == nullptr) return {nullptr, fmt::format("variant: there is no '{}'", config.variant)};
  if (std::string reason = reject_variant(*choice.kernel, args, device); !reason.empty())
    return {nullptr, std::move(reason)};
  return choice;
}

/// Whether rows of `out` start at multiples of 16 bytes, and their length is a multiple of 16 bytes.
bool out_is_aligned(const Args& args) {
  return is_aligned_to_16_bytes(args.out) &&
         args.out.shape[1] * static_cast<std::int64_t>(size_bytes(args.out.dtype)) % 16 == 0;
}
/// Whether scales multiply the sums.
bool has_scales(const Args& args) {
  return (args.a_scale.present() && args.a_group == 0) || args.weight_scale.present();
}
bool has_biases(const Args& args) { return args.bias.present() || args.sum_bias.present(); }

/// -D definitions that say what the operands are.
std::string options_of(const Kernel& kernel, const Args& args, std::int64_t slices, const DeviceCaps& caps) {
  std::string options = fmt::format("-DTILE_ROWS={}{}", kernel.tile_rows, kernel.options) + operand_options(args) +
                        dtype_option("OUT_DTYPE", args.out);
  if (args.slots.present()) options += " -DIN_SLOTS=1";
  if (args.a_zero_point != 0) options += fmt::format(" -DA_ZERO_POINT={}", args.a_zero_point);
  if (args.activation)
    options += fmt::format(" -DFUNCTION={} -DGATED={} -DGATE_IS_RIGHT={}", name(args.activation->function),
                           args.activation->gated ? 1 : 0, args.activation->gate_is_right ? 1 : 0);
  if (is_register_tile(kernel) && kernel.panels > 1) options += fmt::format(" -DPANEL_RUN={}", kernel.panels);
  if (kernel.tensor_cores)
    options += fmt::format(" -DA_ALIGNED={:d} -DA_IN_ORDER={:d} -DOUT_ALIGNED={:d} -DHAS_SCALES={:d} -DHAS_BIASES={:d}",
                           is_aligned_to_16_bytes(args.a), !args.a_index.present(), out_is_aligned(args),
                           has_scales(args), has_biases(args));
  if (slices > 1) options += " -DSLICED=1";
  if (const quantize_groups::Args& next = args.quantization; next.x.present())
    options += fmt::format(" -DQUANTIZES=1 -DGROUP={}", quantize_groups::group_of(next)) +
               quantize_groups::number_options(next, true, true, caps);
  return options;
}

/// Work-groups along dimension 0. On a CPU each takes fewer panels, down to one, if there would be too few for each
/// thread.
std::int64_t column_groups_of(const Kernel& kernel, const Args& args, std::int64_t slices, const DeviceCaps& caps) {
  if (kernel.persistent) return slices > 1 ? tiles_of(kernel, args, all_of(args)) : caps.compute_units;
  if (!is_register_tile(kernel)) return column_tiles_of(kernel, args);
  constexpr std::int64_t groups_of_a_thread = 32;
  const std::int64_t panels = quotient_up(output_width(args), PackedWeights::panel_columns);
  std::int64_t each = kernel.panels;
  while (each > 1 && row_tiles_of(kernel, all_of(args)) * panels < each * groups_of_a_thread * caps.compute_units)
    each /= 2;
  return quotient_up(panels, each);
}

/// Names of the variants that did not build for such operands on the device; empty: none failed.
std::string failed_for(const Args& args, const Device& device) {
  std::string names;
  if (device.failed_variants->size() == 0) return names;
  for (const Candidate& one : candidates())
    if (device.failed_variants->contains(failing(*one.kernel, args)))
      names += (names.empty() ? "" : ", ") + std::string(one.kernel->variant.name);
  return names;
}

/// The properties of arguments that a plan depends on, as far as they may differ between calls of one layer.
struct Form {
  std::int64_t rows, a_rows, n, k, products;
  DType a, out;
  CodeType weights;
  PanelLayout layout;
  bool panel_scales, gathers, in_slots, a_is_aligned, out_is_aligned, has_scales, has_biases, activates, quantizes;
  friend bool operator==(const Form&, const Form&) = default;
};
Form form_of(const Args& args) {
  return {args.out.shape[0],
          args.a.shape[0],
          args.weights.n,
          args.weights.k,
          products_of(args),
          args.a.dtype,
          args.out.dtype,
          args.weights.type,
          args.weights.layout,
          args.weights.panel_scales,
          args.a_index.present(),
          args.slots.present(),
          is_aligned_to_16_bytes(args.a),
          out_is_aligned(args),
          has_scales(args),
          has_biases(args),
          args.activation.has_value(),
          args.quantization.x.present()};
}

/// The partial sums that K-slices hand over to each other, and the stamps of these sums.
struct SliceSums {
  TensorView parts, stamps;
};

grouped_gemm_args kernel_args(const Args& args, const SliceSums& of_slices, std::uint64_t stamp,
                              std::int32_t patience) {
  const auto width = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const PackedWeights& weights = args.weights;
  const quantize_groups::Args& next = args.quantization;
  const Activation activation = args.activation.value_or(Activation());
  return {.a_first = first_element(args.a),
          .a_index_first = first_element(args.a_index),
          .a_scale_first = first_element(args.a_scale),
          .weights_first = first_element(weights.view()),
          .group_scale_first = first_element(weights.scale),
          .group_zero_first = first_element(weights.zero),
          .group_index_first = first_element(weights.group_index),
          .slots_first = first_element(args.slots),
          .sum_bias_first = first_element(args.sum_bias),
          .weight_scale_first = first_element(args.weight_scale),
          .bias_first = first_element(args.bias),
          .row_ends_first = first_element(args.row_ends),
          .k_ends_first = first_element(args.k_ends),
          .out_first = first_element(args.out),
          .q_first = first_element(next.q),
          .q_scale_first = first_element(next.scale),
          .parts_first = first_element(of_slices.parts),
          .stamps_first = first_element(of_slices.stamps),
          .a_stride = args.a.stride[0],
          .a_scale_stride = args.a_group != 0 ? args.a_scale.stride[0] : 0,
          .sum_bias_stride = args.sum_bias.stride[0],
          .weight_scale_stride = args.weight_scale.stride[0],
          .weight_scale_column_stride = column_stride(args.weight_scale),
          .bias_stride = args.bias.stride[0],
          .bias_column_stride = column_stride(args.bias),
          .out_stride = args.out.stride[0],
          .q_stride = next.q.stride[0],
          .q_scale_stride = next.scale.stride[0],
          .rows_per_expert = args.k_ends.present() ? args.a.shape[0] : args.rows_per_expert,
          .stamp = static_cast<long>(stamp),
          .a_rows = width(args.a.shape[0]),
          .rows = width(args.out.shape[0]),
          .n = width(weights.n),
          .k = width(weights.k),
          .groups = width(weights.groups()),
          .index_divisor = args.index_divisor,
          .first_expert = args.first_expert,
          .experts = width(products_of(args)),
          .weight_scale_dtype = any_dtype(args.weight_scale.dtype),
          .bias_dtype = any_dtype(args.bias.dtype),
          .a_scale_bias = args.a_scale_bias ? 1 : 0,
          .patience = patience,
          .alpha = activation.alpha,
          .limit = activation.effective_limit(),
          .up_bias = activation.bias,
          .largest = next.x.present() ? quantize_groups::largest_of(next.format) : 0,
          .least_amax = next.least_amax,
          .most_amax = next.most_amax,
          .least_scale = next.least_scale,
          .global_scale = next.global_scale};
}

/// The operands as a trace shows them.
std::string shape_text(const Args& args, std::int64_t slices) {
  const quantize_groups::Args& next = args.quantization;
  return fmt::format("{} x {}[{}, {}, {}]{}{}{}", args.a.describe(), name(args.weights.type), products_of(args),
                     args.weights.n, args.weights.k, args.activation ? " " : "",
                     args.activation ? name(args.activation->function) : "",
                     next.x.present() ? fmt::format(" to {} by {}", name(next.q.dtype), next.group)
                     : slices > 1     ? fmt::format(" in {} slices of K", slices)
                                      : "");
}

}  // namespace

/// How `enqueue` launches the product.
struct Plan::Launch {
  const Kernel* kernel;
  std::string options;
  NdRange range;
  std::int64_t tiles;
  Form form;
  std::int32_t patience;
  std::string failing;  ///< key by which the device remembers that the program does not build
  std::string without;  ///< trace entry for variants that do not build; empty: all build
  std::string shape;
  OperatorCost cost;
};

std::string Plan::describe() const {
  if (refused()) return why;
  return fmt::format("{}: {} x {} sums{}{}{}, {}", variant, tile_rows, tile_columns,
                     k_slices > 1 ? fmt::format(" in {} slices of K", k_slices) : "",
                     fuses_activation ? ", activated" : "", fuses_codes ? ", quantized" : "", why);
}

bool fuses_activation(const std::string& variant, const Args& args, const Activation& activation,
                      const Device& device) {
  const Kernel* kernel = find(variant);
  return kernel != nullptr && reject_fused_activation(args, activation, *kernel, device.caps).empty();
}

bool fuses_quantization(const std::string& variant, const Args& args, const quantize_groups::Args& next,
                        const Device& device) {
  const Kernel* kernel = find(variant);
  return kernel != nullptr && reject_fused_codes(args, next, *kernel, device).empty();
}

Plan plan(const Args& args, const Config& config, const Device& device) {
  Plan made;
  Choice choice = decide(args, config, device);
  made.why = std::move(choice.why);
  if (choice.kernel == nullptr) return made;
  const Kernel& kernel = *choice.kernel;
  made.variant = kernel.variant.name;
  made.tile_rows = kernel.tile_rows, made.tile_columns = tile_columns(kernel);
  made.k_slices = slices_of(kernel, args, device.caps);
  made.fuses_activation = args.activation.has_value(), made.fuses_codes = args.quantization.x.present();
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const bool runs = args.out.shape[0] != 0 && args.a.shape[0] != 0;
  const std::string failed = failed_for(args, device);
  made.launch = std::make_shared<const Plan::Launch>(Plan::Launch{
      &kernel,
      options_of(kernel, args, made.k_slices, device.caps),
      {{runs ? size(column_groups_of(kernel, args, made.k_slices, device.caps)) * kernel.work_items : 0,
        kernel.persistent ? 1 : size(row_tiles_of(kernel, all_of(args))), size(made.k_slices)},
       {kernel.work_items, 1, 1}},
      tiles_of(kernel, args, all_of(args)),
      form_of(args),
      config.patience,
      failing(kernel, args),
      failed.empty() ? failed : "grouped_gemm without " + failed + ": its program does not build on this device",
      shape_text(args, made.k_slices),
      cost(args)});
  return made;
}

void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit) {
  require(!plan.refused(), "grouped_gemm: {}", plan.why);
  const Plan::Launch& planned = *plan.launch;
  require(form_of(args) == planned.form, "grouped_gemm: planned for {}, got {} to {}", planned.shape, args.a.describe(),
          args.out.describe());
  SliceSums of_slices;
  if (plan.k_slices > 1) {
    const std::int64_t handed_over = planned.tiles * plan.k_slices;
    const std::uint64_t bytes = static_cast<std::uint64_t>(handed_over) * sums_bytes(*planned.kernel);
    of_slices.parts = TensorView(args.scratch.slice(0, bytes), DType::f32, {static_cast<std::int64_t>(bytes / 4)});
    of_slices.stamps = TensorView(args.scratch.slice(bytes, 16 * static_cast<std::uint64_t>(handed_over)), DType::i64,
                                  {2 * handed_over});
  }
  const TensorView &parts = of_slices.parts, &stamps = of_slices.stamps;
  const TensorView weights = args.weights.view();
  const TensorView &group_scale = args.weights.scale, &group_zero = args.weights.zero,
                   &group_index = args.weights.group_index, &q = args.quantization.q,
                   &q_scale = args.quantization.scale;
  std::optional<Trace::Span> span;
  if (stream.trace != nullptr && !planned.without.empty()) span.emplace(stream.trace, planned.without);
  note_failure(stream, planned.failing, [&] {
    launch(stream, {planned.kernel->source, planned.options, planned.kernel->source->name}, planned.range, submit,
           {"grouped_gemm", planned.kernel->variant.name, stream.trace != nullptr ? planned.shape : std::string(),
            planned.cost.bytes, planned.cost.flops},
           args.a, args.a_index, args.a_scale, weights, group_scale, group_zero, group_index, args.slots, args.sum_bias,
           args.weight_scale, args.bias, args.row_ends, args.k_ends, args.out, q, q_scale, parts, stamps,
           kernel_args(args, of_slices, next_stamps(), planned.patience));
  });
}

std::string reject(const Args& args, const Config& config, const Device& device) {
  Choice choice = decide(args, config, device);
  return choice.kernel == nullptr ? std::move(choice.why) : std::string();
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  with_next_variant(stream, [&] { enqueue(stream, plan(args, config, *stream.device), args, submit); });
}

OperatorCost cost(const Args& args, std::int64_t active_experts) {
  const std::int64_t rows = args.out.shape[0], n = args.weights.n, k = args.weights.k;
  const std::int64_t active = active_experts > 0 ? active_experts : std::min(args.weights.experts, rows);
  // Gathered rows may repeat: the least that must be read is each row of `a` once.
  const std::int64_t read_rows = std::min(rows, args.a.shape[0]);
  const PackedWeights& weights = args.weights;
  const auto bits_of = [](const TensorView& view) { return static_cast<std::int64_t>(8 * size_bytes(view.dtype)); };
  const std::int64_t weight_bits =
      n * k * bits(weights.type) + n * weights.groups() * (bits_of(weights.scale) + (weights.zero.present() ? 16 : 0));
  const std::int64_t a_bits = args.a.shape[1] * bits_of(args.a);
  // With windows of k, each row of `a` is multiplied over K only once, spread over the experts.
  const std::int64_t products = args.k_ends.present() ? args.a.shape[0] : rows;
  const quantize_groups::Args& next = args.quantization;
  const std::uint64_t written =
      next.x.present() ? next.q.size_bytes() + next.scale.size_bytes() : args.out.size_bytes();
  return {static_cast<std::uint64_t>(read_rows * a_bits + active * weight_bits) / 8 + written,
          2 * static_cast<std::uint64_t>(products) * static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(k)};
}

}  // namespace moecl::grouped_gemm
