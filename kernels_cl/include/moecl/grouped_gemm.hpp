#pragma once
#include <moecl/device.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/pack_weights.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/tuned_choices.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// For each expert e, its rows times its weights:
///
///     out[j] = ((a[index[j] / divisor] - a_zero_point) x W_e^T + sum_bias_e) * weight_scale_e * a_scale + bias_e
///
/// Sums are f32, in an order that each variant fixes (i8 x i8: exact, in int32), so within one variant a row's result
/// does not depend on the other rows of the batch (with Args::scratch it may). Scales for groups of K multiply the
/// elements before the sum, or as exactly the sums of their groups. A dense product is one expert with every row.
/// Variants avx512_bf16 and amx_bf16 count subnormal operands and sums as 0.
namespace moecl::grouped_gemm {

struct Args {
  /// Shape: [M, K] f32, f16, bf16, i8, f8_e4m3 or f8_e5m2; or u8 [M, ceil(K / 2)]: f4_e2m1 codes, the first in the low
  /// half of its byte
  TensorView a;
  /// optional. Shape: [R] i32: row j reads a[a_index[j] / index_divisor]; absent: a[j].
  /// Range: entries outside [0, M * index_divisor) leave their row of `out` untouched
  TensorView a_index;
  std::int32_t index_divisor = 1;  ///< K when a_index holds sorted slots and a holds tokens
  TensorView a_scale;              ///< optional, indexed as a. Shape: [M] f32, per token; or with a_group as there
  /// Columns of `a` that share a scale, 0: all of a row. Else a_scale is [M, ceil(K / a_group)] f32, f8_e4m3, or u8:
  /// e8m0. Range: multiples of 16
  std::int64_t a_group = 0;
  std::int32_t a_zero_point = 0;  ///< what an element of an i8 `a` counts from. Range: [-128, 127], 0 for other types
  PackedWeights weights;
  TensorView sum_bias;  ///< optional, i8 x i8 without groups. Shape: [E', N] i32: added to the sums
  /// optional. Shape: [E', N], per channel, or [E', 1]. f32, f16, bf16, or i64 and u64 with f32 in the low half
  TensorView weight_scale;
  TensorView bias;            ///< optional. Shape: [E', N] or [E', 1]. f32, f16 or bf16
  bool a_scale_bias = false;  ///< a_scale multiplies the bias as well: (sum * weight_scale + bias) * a_scale
  TensorView row_ends;        ///< optional. Shape: [E] i32 cumulative, on the device; absent: one expert, all R rows
  std::int32_t first_expert = 0;     ///< weights hold E' of the E experts, from this one
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched: expert e's rows start at e * rows_per_expert
  /// optional, instead of row_ends. Shape: [E'] i32 cumulative, on the device: all experts share the one matrix of
  /// `weights` and all rows of `a`, and expert e multiplies only with k in [k_ends[e - 1], k_ends[e]), cut to [0, K).
  /// Then R = E' * M, expert by expert; an empty window gives the bias.
  TensorView k_ends;
  /// Shape: [R, N] f32, f16, bf16; i8: rounded to the nearest, halves to even, in [-128, 127]; i32: the sums of
  /// i8 x i8, without any scale. Rows of other experts and past the valid ones are untouched
  TensorView out;
  /// optional, where `fuses_activation`: `out` is the activation of these rows, a gated one [R, N / 2] of W = [gate |
  /// up]
  std::optional<Activation> activation = {};
  /// optional, where `fuses_quantization`: the next operator, whose x is `out`; its codes and scales are stored instead
  /// of `out`, for the rows that `out` would have
  quantize_groups::Args quantization = {};
  /// optional, at least `scratch_bytes` from a multiple of 16; contents undefined before and after. With it a dense
  /// product of few rows may be summed in slices of K, by work-groups of which one waits for the others: how many
  /// depends on R, and so do a row's roundings
  BufferView scratch = {};
};

/// A row of the variant table.
struct Variant {
  const char* name;         ///< as logs, traces and summaries show it
  const char* written_for;  ///< the execution shape, in words
};

struct Config {
  std::string variant;             ///< empty: chosen by operands, rows and device
  std::int64_t expected_rows = 0;  ///< rows an expert is likely to get, for the choice; 0: R spread over the experts
  /// looks for a slice of K until it is late, about a microsecond each: the rows of its tile then become NaN
  std::int32_t patience = 1 << 21;
};

/// Every variant this library has.
const std::vector<Variant>& variants();
using tuning::any_rows, tuning::rows_choose;
/// A variant, and the most rows of an expert that it is taken for; 0: none.
struct Range {
  const char* variant;
  std::int64_t most_rows;
};
/// Those for products of such types there, as tables of measurements say, else by defaults. Where tiles of tensor cores
/// would leave compute units of a GPU idle, the variant is taken whose tiles are done soonest.
std::vector<Range> ranges(DType a, CodeType weights, const Device& device);
/// The choices that tables of measurements may make about products, as they are made, for people.
std::vector<tuning::Line> describe_choices(const Device& device);
/// How rows between two products with such weights are best stored: where tensor cores or AVX-512 BF16 multiply them as
/// f16 or bf16 (a rounding of each row, as vLLM's kernels do) like plain weights, and beside codes like `dtype`, that
/// of the layer; else f32.
DType row_dtype(CodeType weights, DType dtype, const DeviceCaps& caps);
/// Units: bytes. What Args::scratch is good for there; 0: nothing.
std::uint64_t scratch_bytes(const DeviceCaps& caps);

/// The variant of a product: `config`'s, else the first of `ranges` that takes so many rows of an expert. Steps that it
/// may take over do not change it.
std::string select(const Args& args, const Config& config, const Device& device);
/// Whether a variant can apply this activation to its sums, which saves a pass over the rows: on CPUs and NVIDIA's
/// tensor cores, with gate and up of whole panels.
bool fuses_activation(const std::string& variant, const Args& args, const Activation& activation, const Device& device);
/// Whether it can also make codes of the rows of `args.out`, which saves writing and reading them: of a gated
/// activation, by the rules ratio and power_of_two, in groups of columns that its tiles have whole, on NVIDIA's tensor
/// cores for sm_90a with groups of K.
bool fuses_quantization(const std::string& variant, const Args& args, const quantize_groups::Args& next,
                        const Device& device);

/// How a product is computed, decided once: for all arguments of one form, which is everything but their memory.
/// Copies share it.
struct Plan {
  std::string variant;                   ///< empty: refused before one was chosen
  std::int64_t tile_rows = 0;            ///< of a work-group
  std::int64_t tile_columns = 0;         ///< of a work-group
  std::int64_t k_slices = 1;             ///< of K, with work-groups of their own
  bool fuses_activation = false;         ///< the kernel applies Args::activation
  bool fuses_codes = false;              ///< the kernel makes the codes of Args::quantization
  std::string why;                       ///< why this variant; or why the product cannot run
  struct Launch;                         ///< of the implementation
  std::shared_ptr<const Launch> launch;  ///< null: refused

  /// Whether the product cannot run: `why`.
  bool refused() const noexcept { return launch == nullptr; }
  /// One line, for people.
  std::string describe() const;
};
/// Pure. A product that cannot run gives a refused plan.
Plan plan(const Args& args, const Config& config, const Device& device);
/// Decides nothing; formats and allocates nothing where no trace wants to know.
/// @param args  of the form that was planned for
/// Errors: invalid_argument  the plan is refused, or of another form; build_failed  the device goes without the variant
///         from now on, so that another plan chooses another one
/// Async:  one kernel. Empty: no rows enqueue nothing
void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit = {});

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Plans and enqueues, with the next variant where a program does not build.
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: no rows enqueue nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
/// `active_experts`: whose weights are read; 0 counts min(E, R).
OperatorCost cost(const Args& args, std::int64_t active_experts = 0);

}  // namespace moecl::grouped_gemm
