#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "kernels_cl/common/stamps.hpp"
#include "kernels_cl/gemm/grouped_gemm_args.h"
#include "kernels_cl/gemm/grouped_gemm_variants.hpp"
#include "kernels_cl/quantize/quantize_args.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::grouped_gemm {
namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
/// Longer sums of i8 products can overflow int32.
std::int64_t i8_max_k(std::int32_t a_zero_point) {
  const std::int64_t largest_product = std::max(127 - a_zero_point, 128 + a_zero_point) * 128;
  return (std::int64_t{1} << 31) / largest_product - 1;
}

/// Exact sums in int32, with every scale after them.
bool sums_integers(const Args& args) {
  return args.a.dtype == DType::i8 && args.weights.type == CodeType::i8 && !args.weights.grouped() && args.a_group == 0;
}

/// Experts of the whole layer; the weights may be a segment of them.
std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 1; }

/// Products with rows, scales and a bias of their own: one for each packed matrix, or for each window of k.
std::int64_t products_of(const Args& args) {
  return args.k_ends.present() ? args.k_ends.shape[0] : args.weights.experts;
}

/// A byte of `a` holds two codes.
bool a_is_f4(const Args& args) { return args.a.dtype == DType::u8; }

std::string reject_a(const Args& args) {
  const DType dtype = args.a.dtype;
  const std::int64_t k = args.weights.k, width = a_is_f4(args) ? (k + 1) / 2 : k;
  if (args.a.rank != 2 || args.a.shape[1] != width || args.a.shape[0] > int32_max ||
      !(is_activation_dtype(dtype) || dtype == DType::i8 || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 ||
        a_is_f4(args)))
    return fmt::format("a: expected f32, f16, bf16, i8, f8_e4m3 or f8_e5m2 [M, {}], or u8 [M, {}], got {}", k,
                       (k + 1) / 2, args.a.describe());
  if (args.a_zero_point < -128 || args.a_zero_point > 127 || (args.a_zero_point != 0 && dtype != DType::i8))
    return fmt::format("a_zero_point: {} is not in [-128, 127] or `a` is not i8 but {}", args.a_zero_point,
                       name(dtype));
  const TensorView& scale = args.a_scale;
  if (args.a_group == 0) {
    if (scale.present() && (scale.rank != 1 || scale.dtype != DType::f32 || scale.shape[0] != args.a.shape[0]))
      return fmt::format("a_scale: expected f32[{}], got {}", args.a.shape[0], scale.describe());
    return {};
  }
  if (args.a_group < 0 || args.a_group % 16 != 0)
    return fmt::format("a_group: {} columns are no positive multiple of 16", args.a_group);
  const std::int64_t groups = (k + args.a_group - 1) / args.a_group;
  if (scale.rank != 2 || (scale.dtype != DType::f32 && scale.dtype != DType::u8 && scale.dtype != DType::f8_e4m3) ||
      scale.shape[0] != args.a.shape[0] || scale.shape[1] != groups || scale.stride[1] != 1)
    return fmt::format("a_scale: expected f32, u8 or f8_e4m3 [{}, {}], got {}", args.a.shape[0], groups,
                       scale.describe());
  return {};
}

std::string reject_rows(const Args& args, std::int64_t rows) {
  if (args.a_index.present() &&
      (args.a_index.rank != 1 || args.a_index.dtype != DType::i32 || args.a_index.shape[0] != rows))
    return fmt::format("a_index: expected i32[{}], got {}", rows, args.a_index.describe());
  if (!args.a_index.present() && args.a.shape[0] != rows)
    return fmt::format("a: expected {} rows as out has, got {}", rows, args.a.describe());
  if (args.index_divisor < 1) return fmt::format("index_divisor: {} is not positive", args.index_divisor);
  if (args.row_ends.present() && (args.row_ends.rank != 1 || args.row_ends.dtype != DType::i32))
    return fmt::format("row_ends: expected i32[E], got {}", args.row_ends.describe());
  if (args.first_expert < 0 || args.first_expert + args.weights.experts > experts_of(args))
    return fmt::format("weights: experts [{}, {}) leave the {} of row_ends", args.first_expert,
                       args.first_expert + args.weights.experts, experts_of(args));
  if (args.rows_per_expert < 0 ||
      (args.rows_per_expert > 0 && (!args.row_ends.present() || rows % args.rows_per_expert != 0 ||
                                    rows / args.rows_per_expert != experts_of(args))))
    return fmt::format("rows_per_expert: {} x {} does not give {} rows", args.rows_per_expert, args.row_ends.describe(),
                       rows);
  return {};
}

std::string reject_k_windows(const Args& args) {
  if (args.k_ends.rank != 1 || args.k_ends.dtype != DType::i32 || args.k_ends.shape[0] < 1)
    return fmt::format("k_ends: expected i32[E], got {}", args.k_ends.describe());
  if (args.row_ends.present() || args.a_index.present() || args.rows_per_expert != 0 || args.first_expert != 0 ||
      args.weights.experts != 1)
    return fmt::format(
        "k_ends: expected one matrix and neither row_ends nor a_index, got {}, {} and {} experts from {}",
        args.row_ends.describe(), args.a_index.describe(), args.weights.experts, args.first_expert);
  if (args.weights.grouped() || args.a_group != 0 || bits(args.weights.type) < 8 || a_is_f4(args))
    return fmt::format("k_ends: expected elements of 8 bits or more without scales for groups of K, got {} x {}",
                       args.a.describe(), name(args.weights.type));
  if (args.out.shape[0] % args.k_ends.shape[0] != 0 || args.out.shape[0] / args.k_ends.shape[0] != args.a.shape[0])
    return fmt::format("out: expected {} x {} rows, one set for each window of k, got {}", args.k_ends.shape[0],
                       args.a.shape[0], args.out.describe());
  return {};
}

std::string reject_vector(const TensorView& vector, const char* what, bool stored, const char* types,
                          std::int64_t products, std::int64_t n) {
  if (!vector.present() ||
      (stored && vector.rank == 2 && vector.shape[0] == products && (vector.shape[1] == n || vector.shape[1] == 1)))
    return {};
  return fmt::format("{}: expected {} [{}, {} or 1], got {}", what, types, products, n, vector.describe());
}

std::string reject_epilogue(const Args& args) {
  const std::int64_t products = products_of(args), n = args.weights.n;
  const TensorView& sum_bias = args.sum_bias;
  if (sum_bias.present() && (!sums_integers(args) || sum_bias.rank != 2 || sum_bias.dtype != DType::i32 ||
                             sum_bias.shape[0] != products || sum_bias.shape[1] != n || sum_bias.stride[1] != 1))
    return fmt::format("sum_bias: expected i32[{}, {}] beside i8 x i8, got {} beside {} x {}", products, n,
                       sum_bias.describe(), name(args.a.dtype), name(args.weights.type));
  if (std::string reason = reject_vector(args.weight_scale, "weight_scale", is_scale_dtype(args.weight_scale.dtype),
                                         "f32, f16, bf16 or 64-bit", products, n);
      !reason.empty())
    return reason;
  if (std::string reason =
          reject_vector(args.bias, "bias", is_activation_dtype(args.bias.dtype), "f32, f16 or bf16", products, n);
      !reason.empty())
    return reason;
  if (args.out.dtype == DType::i32 && (args.a_scale.present() || args.weight_scale.present() || args.bias.present()))
    return fmt::format("out: i32 takes the bare sums, got a_scale {}, weight_scale {}, bias {}",
                       args.a_scale.describe(), args.weight_scale.describe(), args.bias.describe());
  return {};
}

/// Columns of `out`.
std::int64_t output_width(const Args& args) {
  return args.activation && args.activation->gated ? args.weights.n / 2 : args.weights.n;
}

std::string reject_activation(const Args& args, const Activation& activation) {
  if (std::string reason = activation.reject(); !reason.empty()) return reason;
  if (activation.interleaved || (activation.gated && args.weights.n % (2 * PackedWeights::panel_columns) != 0))
    return fmt::format("activation: expected gate and up of whole panels of {} columns each, got N = {}{}",
                       PackedWeights::panel_columns, args.weights.n, activation.interleaved ? ", interleaved" : "");
  if (args.k_ends.present() || args.out.dtype == DType::i32)
    return "activation: expected neither k_ends nor an i32 out";
  return {};
}

std::string reject_fusion(const Args& args, const Activation& activation, const Kernel& kernel,
                          const DeviceCaps& caps) {
  if (std::string reason = reject_activation(args, activation); !reason.empty()) return reason;
  if (!kernel.activates) return fmt::format("variant {}: has no activation", kernel.variant.name);
  if (const std::uint64_t needed = local_bytes(kernel, activation.gated); needed > caps.static_local_mem_bytes)
    return fmt::format("activation: needs {} bytes of local memory, the device has {}", needed,
                       caps.static_local_mem_bytes);
  return {};
}

std::string reject_quantization(const Args& args, const quantize_groups::Args& next, const Kernel& kernel,
                                const DeviceCaps& caps) {
  using quantize_groups::ScaleRule;
  const std::int64_t columns = quantized_columns(kernel), group = quantize_groups::group_of(next);
  if (columns == 0) return fmt::format("variant {}: makes no codes", kernel.variant.name);
  if (!args.activation || !args.activation->gated || args.out.dtype != DType::f32)
    return "quantization: expected the f32 rows of a gated activation";
  if (!is_same(next.x, args.out) || next.x.shape != args.out.shape)
    return fmt::format("quantization: expected out, {}, as its x, got {}", args.out.describe(), next.x.describe());
  if (std::string reason = quantize_groups::reject(next, {}, caps); !reason.empty()) return reason;
  const bool has_rule = next.rule == ScaleRule::ratio || next.rule == ScaleRule::power_of_two;
  if (!has_rule || next.quotient != quantize_groups::Quotient::divide || next.group_rows != 1 ||
      !std::isinf(next.most_amax) || !caps.correctly_rounded_divide)
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
  if (needed > caps.static_local_mem_bytes)
    return fmt::format("quantization: needs {} bytes of local memory, the device has {}", needed,
                       caps.static_local_mem_bytes);
  return {};
}

/// How codes.clh calls the storage of a scale.
const char* scale_name(const TensorView& scale) { return scale.dtype == DType::u8 ? "e8m0" : name(scale.dtype); }

/// -D definitions that say what the operands are.
std::string options_of(const Kernel& kernel, const Args& args, std::int64_t slices, const DeviceCaps& caps) {
  std::string options = fmt::format("-DTILE_ROWS={}{}", kernel.tile_rows, kernel.options) + operand_options(args) +
                        dtype_option("OUT_DTYPE", args.out);
  if (args.a_zero_point != 0) options += fmt::format(" -DA_ZERO_POINT={}", args.a_zero_point);
  if (args.activation)
    options += fmt::format(" -DFUNCTION={} -DGATED={} -DGATE_IS_RIGHT={}", name(args.activation->function),
                           args.activation->gated ? 1 : 0, args.activation->gate_is_right ? 1 : 0);
  if (is_register_tile(kernel) && kernel.panels > 1) options += fmt::format(" -DPANEL_RUN={}", kernel.panels);
  if (on_tensor_cores(kernel))
    options += fmt::format(" -DA_ALIGNED={:d} -DA_IN_ORDER={:d} -DOUT_ALIGNED={:d} -DHAS_SCALES={:d} -DHAS_BIASES={:d}",
                           is_aligned_to_16_bytes(args.a), !args.a_index.present(),
                           is_aligned_to_16_bytes(args.out) &&
                               args.out.shape[1] * static_cast<std::int64_t>(size_bytes(args.out.dtype)) % 16 == 0,
                           (args.a_scale.present() && args.a_group == 0) || args.weight_scale.present(),
                           args.bias.present() || args.sum_bias.present());
  if (slices > 1) options += " -DSLICED=1";
  if (const quantize_groups::Args& next = args.quantization; next.x.present())
    options += fmt::format(" -DQUANTIZES=1 -DGROUP={}", quantize_groups::group_of(next)) +
               quantize_groups::number_options(next, true, true, caps);
  return options;
}

/// At most: each expert has one partial tile of rows.
std::int64_t row_tiles_of(const Kernel& kernel, const Args& args) {
  const std::int64_t rows = args.out.shape[0], partial = std::min(products_of(args), rows);
  return partial + (rows - partial) / kernel.tile_rows;
}

/// A gated activation's have gate and up of the same columns; a CPU's work-item takes a panel of each.
std::int64_t column_tiles_of(const Kernel& kernel, const Args& args) {
  const std::int64_t columns = kernel.panels * PackedWeights::panel_columns;
  const std::int64_t n = on_tensor_cores(kernel) ? args.weights.n : output_width(args);
  return (n + columns - 1) / columns;
}

/// Tiles of rows and columns.
std::int64_t tiles_of(const Kernel& kernel, const Args& args) {
  return row_tiles_of(kernel, args) * column_tiles_of(kernel, args);
}

/// Slices of K, each of at least four steps, where scratch is given and tiles are fewer than compute units.
std::int64_t slices_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps) {
  constexpr std::int64_t step = 64, least_steps = 4;
  const std::uint64_t needed = scratch_bytes(caps);
  if (!slices_k(kernel) || products_of(args) != 1 || needed == 0 || args.scratch.size_bytes < needed) return 1;
  const std::int64_t tiles = std::max<std::int64_t>(tiles_of(kernel, args), 1);
  return std::max<std::int64_t>(std::min(caps.compute_units / tiles, args.weights.k / (step * least_steps)), 1);
}

/// Work-groups beside each other. A CPU's take one panel while there would be few of them for each thread.
std::int64_t column_groups_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps) {
  if (kernel.persistent) return caps.compute_units;
  if (!is_register_tile(kernel)) return column_tiles_of(kernel, args);
  constexpr std::int64_t groups_of_a_thread = 32;
  const std::int64_t panels = (output_width(args) + PackedWeights::panel_columns - 1) / PackedWeights::panel_columns;
  std::int64_t each = kernel.panels;
  while (each > 1 && row_tiles_of(kernel, args) * panels < each * groups_of_a_thread * caps.compute_units) each /= 2;
  return (panels + each - 1) / each;
}

/// How a device remembers that a variant does not build for such operands.
std::string failing(const Kernel& kernel, const Args& args) {
  return fmt::format("grouped_gemm/{}{}", kernel.variant.name, operand_options(args));
}

/// The variants that would multiply such operands there and do not build; empty where all do.
std::string failed_for(const Args& args, const DeviceCaps& caps) {
  std::string names;
  if (caps.failed_variants->size() == 0) return names;
  for (const Kernel& kernel : kernels)
    if (caps.failed_variants->contains(failing(kernel, args)))
      names += (names.empty() ? "" : ", ") + std::string(kernel.variant.name);
  return names;
}

/// Those that multiply such operands there and build, in the order of the table; on GPUs T0 only where no extension
/// does.
std::vector<const Kernel*> suitable(const Args& args, const DeviceCaps& caps) {
  const auto builds = [&](const Kernel& kernel) {
    return caps.failed_variants->size() == 0 || !caps.failed_variants->contains(failing(kernel, args));
  };
  std::vector<const Kernel*> found, last;
  for (const Kernel& kernel : kernels)
    if (kernel.extension != nullptr && kernel.extension->offered(caps) && kernel.extension->multiplies(args) &&
        builds(kernel))
      found.push_back(&kernel);
  if (!found.empty() && rows_choose(caps)) return found;
  for (const Kernel& kernel : kernels)
    if (kernel.extension == nullptr && is_register_tile(kernel) != rows_choose(caps))
      (builds(kernel) ? found : last).push_back(&kernel);
  return found.empty() ? last : found;
}

/// Rows of an expert up to which it is taken.
std::int64_t most_rows_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps) {
  if (const TunedChoice* tuned = tuning::find_most_rows(caps, args.a.dtype, args.weights.type, kernel.variant.name))
    return tuned->value;
  return kernel.good_float_width <= caps.preferred_float_width ? kernel.most_rows : 0;
}

}  // namespace

const std::vector<Variant>& variants() {
  // Never destroyed: a static object with a destructor could be used after it at exit.
  static const auto* list = [] {
    auto* names = new std::vector<Variant>;
    for (const Kernel& kernel : kernels) names->push_back(kernel.variant);
    return names;
  }();
  return *list;
}

DType row_dtype(CodeType weights, DType dtype, const DeviceCaps& caps) {
  Args args;
  args.weights.type = weights;
  args.a.dtype = weights == CodeType::bf16 ? DType::bf16 : weights == CodeType::f16 ? DType::f16 : dtype;
  const bool multiplies = std::any_of(std::begin(kernels), std::end(kernels), [&](const Kernel& kernel) {
    return kernel.extension != nullptr && kernel.extension->offered(caps) && kernel.extension->multiplies(args);
  });
  return multiplies && size_bytes(args.a.dtype) == 2 ? args.a.dtype : DType::f32;
}

bool rows_choose(const DeviceCaps& caps) { return caps.type != DeviceType::cpu || caps.preferred_float_width < 4; }

std::vector<Range> ranges(DType a, CodeType weights, const DeviceCaps& caps) {
  Args args;
  args.a.dtype = a, args.weights.type = weights;
  std::vector<Range> found;
  for (const Kernel* kernel : suitable(args, caps))
    found.push_back({kernel->variant.name, most_rows_of(*kernel, args, caps)});
  return found;
}

std::uint64_t scratch_bytes(const DeviceCaps& caps) {
  if (!mma.offered(caps) || caps.type != DeviceType::gpu) return 0;
  std::uint64_t most = 0;  // of a slice, with the two words of its stamp
  for (const Kernel& kernel : kernels)
    if (slices_k(kernel)) most = std::max(most, sums_bytes(kernel) + 16);
  const std::uint64_t all = most * caps.compute_units;
  return all <= caps.max_alloc_bytes / 64 ? all : 0;  // or workspaces would be little else
}

std::string select(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (!config.variant.empty()) return config.variant;
  const std::int64_t spread = (args.out.shape[0] + experts_of(args) - 1) / std::max<std::int64_t>(experts_of(args), 1);
  const std::int64_t of_expert = config.expected_rows > 0 ? config.expected_rows : spread;
  const std::vector<const Kernel*> fitting = suitable(args, caps);
  const auto enough = std::find_if(fitting.begin(), fitting.end(), [&](const Kernel* kernel) {
    return of_expert <= most_rows_of(*kernel, args, caps);
  });
  const Kernel& wanted = **(enough != fitting.end() ? enough : fitting.begin());
  const std::int64_t units = caps.compute_units;
  if (wanted.extension == nullptr || caps.type != DeviceType::gpu || tiles_of(wanted, args) >= units)
    return wanted.variant.name;
  // Its tiles leave compute units idle: others may be done sooner. Units: as tile_time
  constexpr double handing_over = 0.4;  // of sums between slices, an estimate
  constexpr double tile_time_k = 7168;
  const auto time = [&](const Kernel* kernel) {
    const std::int64_t slices = slices_of(*kernel, args, caps), waves = (tiles_of(*kernel, args) + units - 1) / units;
    const double of_tile = kernel->tile_time * static_cast<double>(args.weights.k) / tile_time_k;
    return static_cast<double>(waves) * of_tile / static_cast<double>(slices) + (slices > 1 ? handing_over : 0);
  };
  const auto sooner = [&](const Kernel* a, const Kernel* b) { return time(a) < time(b); };
  return (*std::min_element(fitting.begin(), fitting.end(), sooner))->variant.name;
}

std::string operand_options(const Args& args) {
  std::string options = fmt::format(" -DA_DTYPE={} -DW_DTYPE={}", a_is_f4(args) ? "f4_e2m1" : name(args.a.dtype),
                                    name(args.weights.type));
  if (args.a_group != 0)
    options += fmt::format(" -DA_GROUP={} -DA_SCALE_DTYPE={}", args.a_group, scale_name(args.a_scale));
  if (args.weights.grouped())
    options += fmt::format(" -DW_GROUP={} -DW_SCALE_DTYPE={} -DW_ZERO={}",
                           args.weights.group_index.present() ? 0 : args.weights.group, scale_name(args.weights.scale),
                           args.weights.zero.present() ? 1 : 0);
  return options;
}

bool fuses_activation(const Args& args, const Activation& activation, const Config& config, const DeviceCaps& caps) {
  const Kernel* kernel = find(select(args, config, caps));
  return kernel != nullptr && reject_fusion(args, activation, *kernel, caps).empty();
}

bool fuses_quantization(const Args& args, const quantize_groups::Args& next, const Config& config,
                        const DeviceCaps& caps) {
  const Kernel* kernel = find(select(args, config, caps));
  return kernel != nullptr && reject_quantization(args, next, *kernel, caps).empty();
}

std::string reject_operands(const Args& args) {
  if (std::string reason = args.weights.reject(); !reason.empty()) return reason;
  const bool i8 = sums_integers(args);
  const std::int64_t n = output_width(args), k = args.weights.k;
  if (std::string reason = reject_a(args); !reason.empty()) return reason;
  if (args.out.rank != 2 || args.out.shape[1] != n || args.out.shape[0] > int32_max ||
      (!is_activation_dtype(args.out.dtype) && args.out.dtype != DType::i8 && !(i8 && args.out.dtype == DType::i32)))
    return fmt::format("out: expected f32, f16, bf16 or i8 [R, {}]{}, got {}", n, i8 ? ", or i32" : "",
                       args.out.describe());
  if (std::string reason = args.k_ends.present() ? reject_k_windows(args) : reject_rows(args, args.out.shape[0]);
      !reason.empty())
    return reason;
  if (i8 && k > i8_max_k(args.a_zero_point))
    return fmt::format("weights: i8 sums over K = {} can overflow int32; at most {}", k, i8_max_k(args.a_zero_point));
  if (std::string reason = reject_epilogue(args); !reason.empty()) return reason;
  return args.activation ? reject_activation(args, *args.activation) : std::string();
}

std::string reject(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (std::string reason = reject_operands(args); !reason.empty()) return reason;
  const std::string variant = select(args, config, caps);
  const Kernel* kernel = find(variant);
  if (kernel == nullptr) return fmt::format("variant: there is no '{}'", variant);
  if (kernel->work_items > caps.max_work_group_size || kernel->local_mem_bytes > caps.static_local_mem_bytes)
    return fmt::format("variant {}: needs work-groups of {} and {} bytes of local memory, the device has {} and {}",
                       variant, kernel->work_items, kernel->local_mem_bytes, caps.max_work_group_size,
                       caps.static_local_mem_bytes);
  if (args.activation)
    if (std::string reason = reject_fusion(args, *args.activation, *kernel, caps); !reason.empty()) return reason;
  if (args.quantization.x.present())
    if (std::string reason = reject_quantization(args, args.quantization, *kernel, caps); !reason.empty())
      return reason;
  if (args.scratch.offset_bytes % 16 != 0)
    return fmt::format("scratch: byte offset {} is no multiple of 16", args.scratch.offset_bytes);
  // Mesa's llvmpipe takes vectors apart and then needs minutes to compile the register tiles.
  if (kernel->min_float_width > caps.preferred_float_width)
    return fmt::format("variant {}: needs float vectors of at least {} lanes, the device prefers {}", variant,
                       kernel->min_float_width, caps.preferred_float_width);
  if (const Extension* needs = kernel->extension;
      needs != nullptr && !(needs->offered(caps) && needs->multiplies(args)))
    return fmt::format("variant {}: multiplies {}, got {} x {}", variant, needs->what, args.a.describe(),
                       name(args.weights.type));
  return {};
}

namespace {

grouped_gemm_args kernel_args(const Args& args, const TensorView& parts, const TensorView& stamps, std::uint64_t stamp,
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
          .sum_bias_first = first_element(args.sum_bias),
          .weight_scale_first = first_element(args.weight_scale),
          .bias_first = first_element(args.bias),
          .row_ends_first = first_element(args.row_ends),
          .k_ends_first = first_element(args.k_ends),
          .out_first = first_element(args.out),
          .q_first = first_element(next.q),
          .q_scale_first = first_element(next.scale),
          .parts_first = first_element(parts),
          .stamps_first = first_element(stamps),
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

void enqueue_chosen(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const std::string reason = reject(args, config, stream.device->caps);
  require(reason.empty(), "grouped_gemm: {}", reason);
  const std::string failed = failed_for(args, stream.device->caps);
  const std::string without =
      failed.empty() ? failed : "grouped_gemm without " + failed + ": its program does not build on this device";
  const Trace::Span span(failed.empty() ? nullptr : stream.trace, without);
  const Kernel& kernel = *find(select(args, config, stream.device->caps));
  const TensorView weights = args.weights.view();
  const std::int64_t rows = args.out.shape[0], experts = products_of(args);
  const std::int64_t tiles = row_tiles_of(kernel, args);
  const bool runs = rows != 0 && args.a.shape[0] != 0;
  const OperatorCost work = cost(args);
  const std::int64_t groups = column_groups_of(kernel, args, stream.device->caps);
  const std::int64_t slices = slices_of(kernel, args, stream.device->caps);
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const quantize_groups::Args& next = args.quantization;
  const TensorView &group_scale = args.weights.scale, &group_zero = args.weights.zero,
                   &group_index = args.weights.group_index;
  const TensorView &q = next.q, &q_scale = next.scale;
  TensorView parts, stamps;  // of slices of K
  if (slices > 1) {
    const std::int64_t handed_over = tiles_of(kernel, args) * (slices - 1);
    const std::uint64_t bytes = static_cast<std::uint64_t>(handed_over) * sums_bytes(kernel);
    parts = TensorView(args.scratch.slice(0, bytes), DType::f32, {static_cast<std::int64_t>(bytes / 4)});
    stamps = TensorView(args.scratch.slice(bytes, 16 * static_cast<std::uint64_t>(handed_over)), DType::i64,
                        {2 * handed_over});
  }
  note_failure(stream, failing(kernel, args), [&] {
    launch(
        stream, {kernel.source, options_of(kernel, args, slices, stream.device->caps), kernel.name},
        {{runs ? size(groups) * kernel.work_items : 0, kernel.persistent ? 1 : size(tiles), size(slices)},
         {kernel.work_items, 1, 1}},
        submit,
        {"grouped_gemm", kernel.variant.name,
         fmt::format("{} x {}[{}, {}, {}]{}{}{}", args.a.describe(), name(args.weights.type), experts, args.weights.n,
                     args.weights.k, args.activation ? " " : "", args.activation ? name(args.activation->function) : "",
                     next.x.present() ? fmt::format(" to {} by {}", name(next.q.dtype), next.group)
                     : slices > 1     ? fmt::format(" in {} slices of K", slices)
                                      : ""),
         work.bytes, work.flops},
        args.a, args.a_index, args.a_scale, weights, group_scale, group_zero, group_index, args.sum_bias,
        args.weight_scale, args.bias, args.row_ends, args.k_ends, args.out, q, q_scale, parts, stamps,
        kernel_args(args, parts, stamps, slices > 1 ? next_stamps() : 0, config.patience));
  });
}

}  // namespace

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  with_next_variant(stream, [&] { enqueue_chosen(stream, args, config, submit); });
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
  // Windows of k share out the products of each row of `a`.
  const std::int64_t products = args.k_ends.present() ? args.a.shape[0] : rows;
  const quantize_groups::Args& next = args.quantization;
  const std::uint64_t written =
      next.x.present() ? next.q.size_bytes() + next.scale.size_bytes() : args.out.size_bytes();
  return {static_cast<std::uint64_t>(read_rows * a_bits + active * weight_bits) / 8 + written,
          2 * static_cast<std::uint64_t>(products) * static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(k)};
}

}  // namespace moecl::grouped_gemm
