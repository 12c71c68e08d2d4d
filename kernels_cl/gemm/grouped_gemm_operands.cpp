#include "kernels_cl/gemm/grouped_gemm_operands.hpp"

#include <limits>

#include "kernels_cl/common/launch_shape.hpp"
#include "runtime/quotient.hpp"

namespace moecl::grouped_gemm {
namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
/// Largest K for which sums of i8 products cannot overflow int32.
std::int64_t i8_max_k(std::int32_t a_zero_point) {
  const std::int64_t largest_product = std::max(127 - a_zero_point, 128 + a_zero_point) * 128;
  return (std::int64_t{1} << 31) / largest_product - 1;
}

/// Whether sums are exact, in int32, and all scales are applied after the sum.
bool sums_integers(const Args& args) {
  return args.a.dtype == DType::i8 && args.weights.type == CodeType::i8 && !args.weights.grouped() && args.a_group == 0;
}

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
  const std::int64_t groups = quotient_up(k, args.a_group);
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
  const TensorView& slots = args.slots;
  if (slots.present() && (slots.rank != 1 || slots.dtype != DType::i32 || !slots.contiguous() || slots.shape[0] < 1 ||
                          !args.row_ends.present()))
    return fmt::format("slots: expected i32[E] beside row_ends, got {} beside {}", slots.describe(),
                       args.row_ends.describe());
  if (args.first_expert < 0 || args.first_expert + products_of(args) > experts_of(args))
    return fmt::format("weights: experts [{}, {}) leave the {} of row_ends", args.first_expert,
                       args.first_expert + products_of(args), experts_of(args));
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
  if (args.row_ends.present() || args.slots.present() || args.a_index.present() || args.rows_per_expert != 0 ||
      args.first_expert != 0 || args.weights.experts != 1)
    return fmt::format(
        "k_ends: expected one matrix and neither row_ends nor a_index, got {}, {} and {} experts from {}",
        args.row_ends.describe(), args.a_index.describe(), args.weights.experts, args.first_expert);
  if (args.weights.grouped() || args.a_group != 0 || bits(args.weights.type) < 8 || a_is_f4(args) ||
      args.weights.layout != PanelLayout::n_major)
    return fmt::format(
        "k_ends: expected elements of 8 bits or more, n_major, without scales for groups of K, got {} x {} {}",
        args.a.describe(), name(args.weights.type), name(args.weights.layout));
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

/// The name that codes.clh has for the storage type of a scale.
const char* scale_name(const TensorView& scale) { return scale.dtype == DType::u8 ? "e8m0" : name(scale.dtype); }

}  // namespace

std::string operand_options(const Args& args) {
  std::string options = fmt::format(" -DA_DTYPE={} -DW_DTYPE={}", a_is_f4(args) ? "f4_e2m1" : name(args.a.dtype),
                                    name(args.weights.type));
  if (args.a_group != 0)
    options += fmt::format(" -DA_GROUP={} -DA_SCALE_DTYPE={}", args.a_group, scale_name(args.a_scale));
  if (args.weights.grouped())
    options += fmt::format(" -DW_GROUP={} -DW_SCALE_DTYPE={} -DW_ZERO={}",
                           args.weights.group_index.present() ? 0 : args.weights.group, scale_name(args.weights.scale),
                           args.weights.zero.present() ? 1 : 0);
  return options + layout_option(args.weights.layout);
}

const char* layout_option(PanelLayout layout) noexcept {
  return layout == PanelLayout::k_major ? " -DW_K_MAJOR=1" : layout == PanelLayout::k_words ? " -DW_K_WORDS=1" : "";
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

}  // namespace moecl::grouped_gemm
