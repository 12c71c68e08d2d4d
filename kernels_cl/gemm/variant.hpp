#pragma once
// The variants of the grouped GEMM: a list for each class of device, beside its kernels.
#include <moecl/device.hpp>
#include <moecl/grouped_product.hpp>

#include <span>
#include <string_view>

#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "runtime/kernel.hpp"

namespace moecl::grouped_gemm {

/// Instructions that a variant needs beyond T0, and the operands that they multiply.
struct Extension {
  bool (*offered)(const DeviceCaps& caps);
  bool (*multiplies)(const Args& args);
  const char* what;  ///< `multiplies` in words
};

/// Whether K-slices have their own work-groups, and which work-groups of a tile wait for the others to add up the sums.
enum class KSlices { none, last_waits, all_wait };

/// How a variant is compiled and launched. Its measurements are in kernels_cl/tuning/gemm_variants.json.
struct Kernel {
  Variant variant;
  const ProgramSource* source;           ///< its kernel has the same name
  const Extension* extension = nullptr;  ///< null: T0, which multiplies everything
  const char* options = "";              ///< -D definitions in addition to those of the operands
  std::int64_t tile_rows;                ///< rows of one expert that a work-group takes
  std::int64_t panels = 1;               ///< per work-group, on CPUs at most; there a gated activation counts pairs
  std::size_t work_items;                ///< of a work-group
  std::uint64_t local_mem_bytes;         ///< of a work-group
  std::uint64_t gated_bytes = 0;         ///< additional local memory for a gated activation
  /// Above 1: one work-item keeps a tile of sums in its registers, for CPUs whose driver prefers vectors of at least
  /// this many floats. 1: the work-items of a work-group share a tile
  std::uint32_t min_float_width = 1;
  std::uint32_t good_float_width = 1;           ///< if the device prefers shorter vectors, only a tuning table picks it
  bool tensor_cores = false;                    ///< a kernel of tensor_tile.clh
  bool persistent = false;                      ///< one work-group per compute unit takes tiles in turn
  bool activates = false;                       ///< applies the activation to its sums
  bool quantizes = false;                       ///< quantizes the activated sums
  bool k_major = false;                         ///< also reads k_major panels
  bool (*k_words)(const Args& args) = nullptr;  ///< whether it reads k_words panels; null: never
  bool (*faster_in_words)(const Args& args) = nullptr;  ///< whether k_words is faster for it; null: never
  KSlices k_slices = KSlices::none;
};

namespace cpu {
std::span<const Kernel> variants();
}
namespace hopper {
std::span<const Kernel> variants();
}
namespace nvidia {
std::span<const Kernel> variants();
}
namespace gpu {
std::span<const Kernel> variants();
}

/// A variant with its measurements.
struct Candidate {
  const Kernel* kernel;
  std::int64_t most_rows;  ///< of an expert for which it is good, unless a tuning table of the device says otherwise
  double tile_us;          ///< time of one tile alone on a compute unit, K = 7168: compares variants for equal operands
  double slices_us;        ///< time that K-slices add to their share of a tile
  std::int64_t least_rows;  ///< of an expert, from which on it precedes variants for fewer rows; 0: they precede it
};
/// All candidates: first those with least_rows, then the others, each in ascending order of most_rows. `select` takes
/// the first that fits, extensions before T0.
const std::vector<Candidate>& candidates();
/// Null: there is none of that name.
const Kernel* find(std::string_view variant);

inline bool reads(const Kernel& kernel, const Args& args) {
  switch (args.weights.layout) {
    case PanelLayout::k_major:
      return kernel.k_major;
    case PanelLayout::k_words:
      return kernel.k_words != nullptr && kernel.k_words(args);
    default:
      return true;
  }
}
inline bool is_register_tile(const Kernel& kernel) { return kernel.min_float_width > 1; }
inline std::int64_t tile_columns(const Kernel& kernel) { return kernel.panels * PackedWeights::panel_columns; }

}  // namespace moecl::grouped_gemm
