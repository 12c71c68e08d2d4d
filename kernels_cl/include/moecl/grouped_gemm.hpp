#pragma once
#include <moecl/device.hpp>
#include <moecl/grouped_product.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/pack_weights.hpp>
#include <moecl/tuned_choices.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Runs the grouped product of grouped_product.hpp by the variant that suits operands, rows and device.
namespace moecl::grouped_gemm {

/// Every variant this library has.
const std::vector<Variant>& variants();
using tuning::any_rows, tuning::rows_choose;
/// A variant, and the most rows of an expert for which it is chosen; 0: never.
struct Range {
  const char* variant;
  std::int64_t most_rows;
};
/// The ranges for products of these types on `device`: from tuning tables, else defaults. Exception: where the tiles of
/// tensor cores would leave compute units of a GPU idle, the variant is chosen whose tiles are done soonest.
std::vector<Range> ranges(DType a, CodeType weights, const Device& device);
/// The choices about products that tuning tables may make, with their present values; for people.
std::vector<tuning::Line> describe_choices(const Device& device);
/// The best storage type of rows between two products with such weights. Where tensor cores or AVX-512 BF16 multiply
/// 16-bit rows, it is the type of f16 or bf16 weights, or beside codes `dtype`, the layer's type; each row is then
/// rounded, as by vLLM's kernels. Else it is f32.
DType row_dtype(CodeType weights, DType dtype, const DeviceCaps& caps);
/// The properties of a product's operands on which its panel layout depends.
struct Factors {
  DType rows = DType::f32;
  std::int64_t rows_group = 0;  ///< columns of a row that share a scale; 0: one scale for all, or none
  CodeType weights = CodeType::f32;
  std::int64_t k = 0;
  std::int64_t weights_group = 0;  ///< elements along K that share a scale; 0: one scale for all, or none
};
/// The fastest layout on the device: k_major where tensor cores multiply 8-bit codes on both sides, k_words where a
/// CPU's dot products were measured faster with it, else n_major.
PanelLayout panel_layout(const Factors& factors, const DeviceCaps& caps);
/// The layouts of such weights that some variant reads on the device, n_major first.
std::vector<PanelLayout> panel_layouts(DType rows, CodeType weights, const DeviceCaps& caps);
/// Why `panel_layout` chooses `layout`, for people.
const char* why(PanelLayout layout) noexcept;
/// Units: bytes. The size of Args::scratch that the device has a use for; 0: none. @param concurrent  as in Args
std::uint64_t scratch_bytes(const DeviceCaps& caps, bool concurrent = false);

/// The variant of a product: `config`'s, else the first of `ranges` that takes this many rows of an expert. Steps that
/// the variant may fuse (activation, quantization) do not change the choice.
std::string select(const Args& args, const Config& config, const Device& device);
/// Whether a variant can apply this activation to its sums, which saves a pass over the rows. Variants for CPUs and for
/// NVIDIA's tensor cores can, if gate and up consist of whole panels.
bool fuses_activation(const std::string& variant, const Args& args, const Activation& activation, const Device& device);
/// Whether a variant can also quantize the rows of `args.out`, which saves writing and reading them. Variants for
/// NVIDIA's sm_90a tensor cores with scale groups along K can, after a gated activation, by the rules ratio and
/// power_of_two, if each group of columns lies within one tile.
bool fuses_quantization(const std::string& variant, const Args& args, const quantize_groups::Args& next,
                        const Device& device);

/// How a product is computed, decided once for all arguments of one form: those that differ in their memory alone.
/// Copies of a plan share its Launch.
struct Plan {
  std::string variant;                   ///< empty: refused before one was chosen
  std::int64_t tile_rows = 0;            ///< rows of the tile of a work-group
  std::int64_t tile_columns = 0;         ///< columns of the tile of a work-group
  std::int64_t k_slices = 1;             ///< K-slices, each with work-groups of its own
  bool fuses_activation = false;         ///< the kernel applies Args::activation
  bool fuses_codes = false;              ///< the kernel quantizes as Args::quantization says
  std::string why;                       ///< why this variant; or why the product cannot run
  struct Launch;                         ///< internal
  std::shared_ptr<const Launch> launch;  ///< null: refused

  /// Whether the product cannot run; `why` has the reason.
  bool refused() const noexcept { return launch == nullptr; }
  /// One line, for people.
  std::string describe() const;
};
/// Pure. A product that cannot run gives a refused plan.
Plan plan(const Args& args, const Config& config, const Device& device);
/// Makes no decisions. Formats and allocates nothing, unless there is a trace.
/// @param args  of the form for which the plan was made
/// Errors: invalid_argument  the plan is refused, or of another form; build_failed  the program does not build, and the
///         device excludes the variant from now on, so that a new plan chooses another one
/// Async:  one kernel. Empty: zero rows enqueue nothing
void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit = {});

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Plans and enqueues. If a program does not build, the next variant is used.
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: zero rows enqueue nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
/// @param active_experts  number of experts whose weights are read; 0 counts min(E, R)
OperatorCost cost(const Args& args, std::int64_t active_experts = 0);

}  // namespace moecl::grouped_gemm
