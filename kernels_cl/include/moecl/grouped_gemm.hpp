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

/// Products by the variant that suits operands, rows and device.
namespace moecl::grouped_gemm {

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
/// What a product multiplies, as far as a layout depends on it.
struct Factors {
  DType rows = DType::f32;
  std::int64_t rows_group = 0;  ///< columns of a row that share a scale; 0: all, or none has one
  CodeType weights = CodeType::f32;
  std::int64_t k = 0;
  std::int64_t weights_group = 0;  ///< k of a column that share a scale; 0: all, or none has one
};
/// The layout that is fastest there: k_major where tensor cores multiply codes of 8 bits on both sides, k_words where a
/// CPU's dot products were measured faster with it, else n_major.
PanelLayout panel_layout(const Factors& factors, const DeviceCaps& caps);
/// Those of weights that some variant reads there, n_major first.
std::vector<PanelLayout> panel_layouts(DType rows, CodeType weights, const DeviceCaps& caps);
/// Why `panel_layout` chooses it, for people.
const char* why(PanelLayout layout) noexcept;
/// Units: bytes. What Args::scratch is good for there; 0: nothing. @param concurrent  As Args has it
std::uint64_t scratch_bytes(const DeviceCaps& caps, bool concurrent = false);

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
