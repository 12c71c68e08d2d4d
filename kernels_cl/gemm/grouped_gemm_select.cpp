#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>

#include <algorithm>

#include "kernels_cl/gemm/panel_order.h"
#include "kernels_cl/gemm/tiles.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::grouped_gemm {
namespace {

bool slices_k(const Kernel& kernel, bool concurrent) {
  return kernel.k_slices == KSlices::last_waits || (kernel.k_slices == KSlices::all_wait && !concurrent);
}

/// The candidates that multiply such operands on the device and build, in the order of `candidates`. On GPUs T0 is
/// included only if no extension fits.
std::vector<const Candidate*> suitable(const Args& args, const Device& device) {
  const DeviceCaps& caps = device.caps;
  const auto builds = [&](const Kernel& kernel) {
    if (!reads(kernel, args)) return false;
    return device.failed_variants->size() == 0 || !device.failed_variants->contains(failing(kernel, args));
  };
  std::vector<const Candidate*> found, last;
  for (const Candidate& one : candidates())
    if (const Extension* extension = one.kernel->extension;
        extension != nullptr && extension->offered(caps) && extension->multiplies(args) && builds(*one.kernel))
      found.push_back(&one);
  if (!found.empty() && rows_choose(caps)) return found;
  for (const Candidate& one : candidates())
    if (one.kernel->extension == nullptr && is_register_tile(*one.kernel) != rows_choose(caps))
      (builds(*one.kernel) ? found : last).push_back(&one);
  return found.empty() ? last : found;
}

/// The largest number of rows per expert for which a candidate is chosen.
std::int64_t most_rows_of(const Candidate& one, const Args& args, const Device& device) {
  const Kernel& kernel = *one.kernel;
  if (const TunedChoice* tuned =
          tuning::find_most_rows(device.tuning, args.a.dtype, args.weights.type, kernel.variant.name))
    return tuned->value;
  return kernel.good_float_width <= device.caps.preferred_float_width ? one.most_rows : 0;
}

std::string rows_text(std::int64_t most_rows) {
  return most_rows == any_rows ? "any rows" : most_rows == 0 ? "never" : fmt::format("up to {} rows", most_rows);
}

}  // namespace

const std::vector<Candidate>& candidates() {
  // Never destroyed: at exit, other code could use a static object after its destructor ran.
  static const auto* list = [] {
    auto* all = new std::vector<Candidate>;
    for (const auto variants : {cpu::variants(), hopper::variants(), nvidia::variants(), gpu::variants()})
      for (const Kernel& kernel : variants) {
        const auto& defaults = tuning::variant_defaults();
        const auto of = std::find_if(defaults.begin(), defaults.end(), [&](const tuning::VariantDefaults& one) {
          return one.name == kernel.variant.name;
        });
        require(of != defaults.end(), "tuning/gemm_variants.json: has no {}", kernel.variant.name);
        all->push_back({&kernel, of->most_rows, of->tile_us, of->slices_us, of->least_rows});
      }
    std::stable_sort(all->begin(), all->end(), [](const Candidate& a, const Candidate& b) {
      return std::pair(a.least_rows == 0, a.most_rows) < std::pair(b.least_rows == 0, b.most_rows);
    });
    return all;
  }();
  return *list;
}

const Kernel* find(std::string_view variant) {
  for (const Candidate& one : candidates())
    if (variant == one.kernel->variant.name) return one.kernel;
  return nullptr;
}

const std::vector<Variant>& variants() {
  static const auto* list = [] {
    auto* names = new std::vector<Variant>;
    for (const Candidate& one : candidates()) names->push_back(one.kernel->variant);
    return names;
  }();
  return *list;
}

std::string failing(const Kernel& kernel, const Args& args) {
  return fmt::format("grouped_gemm/{}{}", kernel.variant.name, operand_options(args));
}

DType row_dtype(CodeType weights, DType dtype, const DeviceCaps& caps) {
  Args args;
  args.weights.type = weights;
  args.a.dtype = weights == CodeType::bf16 ? DType::bf16 : weights == CodeType::f16 ? DType::f16 : dtype;
  const bool multiplies = std::any_of(candidates().begin(), candidates().end(), [&](const Candidate& one) {
    const Extension* extension = one.kernel->extension;
    return extension != nullptr && extension->offered(caps) && extension->multiplies(args);
  });
  return multiplies && size_bytes(args.a.dtype) == 2 ? args.a.dtype : DType::f32;
}

PanelLayout panel_layout(const Factors& factors, const DeviceCaps& caps) {
  Args args;
  args.a.dtype = factors.rows, args.a_group = factors.rows_group;
  args.weights.type = factors.weights, args.weights.k = factors.k, args.weights.group = factors.weights_group;
  const auto first_that = [&](auto&& holds) {
    return std::find_if(candidates().begin(), candidates().end(), [&](const Candidate& one) {
      const Extension* extension = one.kernel->extension;
      return extension != nullptr && extension->offered(caps) && extension->multiplies(args) && holds(*one.kernel);
    });
  };
  const bool blocks = bits(factors.weights) == 8 && size_bytes(factors.rows) == 1 && factors.k % K_MAJOR_BLOCK == 0;
  if (blocks && first_that([](const Kernel& kernel) { return kernel.k_major; }) != candidates().end())
    return PanelLayout::k_major;
  const bool words = factors.k % (WORD_BITS / bits(factors.weights)) == 0 && factors.weights_group % 16 == 0;
  const auto n_major = first_that([](const Kernel&) { return true; });
  args.weights.layout = PanelLayout::k_words;
  const auto faster_in_words = first_that(
      [&](const Kernel& kernel) { return kernel.faster_in_words != nullptr && kernel.faster_in_words(args); });
  const bool faster = faster_in_words != candidates().end() && faster_in_words <= n_major;
  return words && faster ? PanelLayout::k_words : PanelLayout::n_major;
}

std::vector<PanelLayout> panel_layouts(DType rows, CodeType weights, const DeviceCaps& caps) {
  std::vector<PanelLayout> found;
  for (const PanelLayout layout : {PanelLayout::n_major, PanelLayout::k_major, PanelLayout::k_words}) {
    Args args;
    args.a.dtype = rows, args.weights.type = weights, args.weights.layout = layout;
    const bool is_read = std::any_of(candidates().begin(), candidates().end(), [&](const Candidate& one) {
      const Extension* extension = one.kernel->extension;
      return reads(*one.kernel, args) && (extension != nullptr ? extension->offered(caps) && extension->multiplies(args)
                                                               : is_register_tile(*one.kernel) != rows_choose(caps));
    });
    args.weights.experts = 1, args.weights.n = PackedWeights::panel_columns, args.weights.k = K_MAJOR_BLOCK;
    args.weights.buffer.size_bytes = PackedWeights::size_bytes(weights, 1, args.weights.n, args.weights.k);
    if (is_read && args.weights.reject().empty()) found.push_back(layout);
  }
  return found;
}

const char* why(PanelLayout layout) noexcept {
  switch (layout) {
    case PanelLayout::k_major:
      return "tensor cores take it so";
    case PanelLayout::k_words:
      return "dot products take it so";
    default:
      return "every kernel reads it";
  }
}

std::vector<Range> ranges(DType a, CodeType weights, const Device& device) {
  Args args;
  args.a.dtype = a, args.weights.type = weights;
  if (panel_layout({a, 0, weights, K_MAJOR_BLOCK}, device.caps) == PanelLayout::k_words)
    args.weights.layout = PanelLayout::k_words;
  std::vector<Range> found;
  for (const Candidate* one : suitable(args, device))
    found.push_back({one->kernel->variant.name, most_rows_of(*one, args, device)});
  return found;
}

std::vector<tuning::Line> describe_choices(const Device& device) {
  std::vector<tuning::Line> lines;
  for (const auto& [a, weights] : tuning::operands())
    for (const Range& range : ranges(a, weights, device)) {
      lines.push_back(tuning::line_of(tuning::most_rows_name(a, weights, range.variant), rows_text(range.most_rows),
                                      tuning::find_most_rows(device.tuning, a, weights, range.variant)));
      if (range.most_rows == any_rows) break;  // later ones are for products that it cannot spread over all units
    }
  return lines;
}

std::uint64_t scratch_bytes(const DeviceCaps& caps, bool concurrent) {
  if (caps.type != DeviceType::gpu) return 0;
  std::uint64_t most = 0;  // bytes of a K-slice, with the two words of its stamps
  for (const Candidate& one : candidates())
    if (slices_k(*one.kernel, concurrent) && one.kernel->extension->offered(caps))
      most = std::max(most, sums_bytes(*one.kernel) + 16);
  const std::uint64_t all = most * caps.compute_units;
  return all <= caps.max_alloc_bytes / 64 ? all : 0;  // otherwise workspaces would consist of little else
}

std::int64_t slices_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps) {
  constexpr std::int64_t step = 64, least_steps = 4;
  const std::uint64_t needed = scratch_bytes(caps, args.concurrent);
  if (!slices_k(kernel, args.concurrent) || products_of(args) != 1) return 1;
  if (needed == 0 || args.scratch.size_bytes < needed) return 1;
  const std::int64_t tiles = std::max<std::int64_t>(tiles_of(kernel, args, all_of(args)), 1);
  return std::max<std::int64_t>(std::min(caps.compute_units / tiles, args.weights.k / (step * least_steps)), 1);
}

Choice choose(const Args& args, const Config& config, const Device& device) {
  const DeviceCaps& caps = device.caps;
  if (!config.variant.empty()) return {find(config.variant), "named"};
  const bool whole = config.expected.rows == 0;
  const std::int64_t rows = whole ? args.out.shape[0] : config.expected.rows,
                     experts = std::max<std::int64_t>(whole ? experts_of(args) : config.expected.experts, 1),
                     of_expert = quotient_up(rows, experts);
  const auto tiles = [&](const Kernel& kernel) {
    return tiles_of(kernel, args, whole ? all_of(args) : config.expected);
  };
  const std::vector<const Candidate*> fitting = suitable(args, device);
  const auto enough = std::find_if(fitting.begin(), fitting.end(), [&](const Candidate* one) {
    return of_expert >= one->least_rows && of_expert <= most_rows_of(*one, args, device);
  });
  const Candidate& wanted = **(enough != fitting.end() ? enough : fitting.begin());
  const std::int64_t units = caps.compute_units;
  if (wanted.kernel->extension == nullptr || caps.type != DeviceType::gpu || tiles(*wanted.kernel) >= units)
    return {wanted.kernel, wanted.least_rows > 0
                               ? fmt::format("from {} rows of an expert on, it has {}", wanted.least_rows, of_expert)
                               : fmt::format("for {} of an expert, it has {}",
                                             rows_text(most_rows_of(wanted, args, device)), of_expert)};
  // The tiles of `wanted` leave compute units idle, so another variant may finish sooner.
  constexpr double tile_time_k = 7168;
  const auto time = [&](const Candidate* one) {
    const Kernel& kernel = *one->kernel;
    const std::int64_t slices = slices_of(kernel, args, caps), waves = quotient_up(tiles(kernel), units);
    const double of_tile = one->tile_us * static_cast<double>(args.weights.k) / tile_time_k;
    return static_cast<double>(waves) * of_tile / static_cast<double>(slices) + (slices > 1 ? one->slices_us : 0);
  };
  const auto sooner = [&](const Candidate* a, const Candidate* b) { return time(a) < time(b); };
  return {(*std::min_element(fitting.begin(), fitting.end(), sooner))->kernel,
          fmt::format("its tiles are done soonest on {} compute units", units)};
}

std::string select(const Args& args, const Config& config, const Device& device) {
  const Kernel* kernel = choose(args, config, device).kernel;
  return kernel != nullptr ? kernel->variant.name : config.variant;
}

}  // namespace moecl::grouped_gemm
