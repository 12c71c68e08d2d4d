#pragma once
// The variants of the grouped GEMM: a list for each class of device, beside its kernels.
#include <moecl/device.hpp>
#include <moecl/grouped_product.hpp>

#include <span>
#include <string_view>

#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "runtime/kernel.hpp"

namespace moecl::grouped_gemm {

/// Instructions beside those of T0, and what they multiply.
struct Extension {
  bool (*offered)(const DeviceCaps& caps);
  bool (*multiplies)(const Args& args);
  const char* what;  ///< of `multiplies`, in words
};

/// Whether slices of K have work-groups of their own, and which of a tile's wait for the others to add up sums.
enum class KSlices { none, last_waits, all_wait };

/// How a variant is compiled and launched. What was measured of it stands in kernels_cl/tuning/gemm_variants.json.
struct Kernel {
  Variant variant;
  const ProgramSource* source;           ///< its kernel has the same name
  const Extension* extension = nullptr;  ///< null: T0, which multiplies everything
  const char* options = "";              ///< -D definitions beside those of operands
  std::int64_t tile_rows;                ///< rows of one expert that a work-group takes
  std::int64_t panels = 1;               ///< of a work-group, on CPUs at most; there a gated activation's come in pairs
  std::size_t work_items;                ///< of a work-group
  std::uint64_t local_mem_bytes;         ///< of a work-group
  std::uint64_t gated_bytes = 0;         ///< what a gated activation takes beside them
  /// One work-item keeps a tile of sums in its registers: for CPUs whose driver wants vectors of at least so many
  /// floats. 1: the work-items of a group share a tile
  std::uint32_t min_float_width = 1;
  std::uint32_t good_float_width = 1;           ///< where the device prefers shorter vectors, only a table takes it
  bool tensor_cores = false;                    ///< a kernel of tensor_tile.clh
  bool persistent = false;                      ///< a work-group a compute unit takes tiles in turn
  bool activates = false;                       ///< its sums
  bool quantizes = false;                       ///< the activation of its sums
  bool k_major = false;                         ///< it reads such panels too
  bool (*k_words)(const Args& args) = nullptr;  ///< whether it reads such panels; null: none
  bool (*faster_in_words)(const Args& args) = nullptr;  ///< of those that it reads; null: none
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

/// A variant with what was measured of it.
struct Candidate {
  const Kernel* kernel;
  std::int64_t most_rows;  ///< of an expert, that it is good for where no table of the device says otherwise
  double tile_us;    ///< of a tile that a compute unit has alone, K = 7168: compares variants of the same operands
  double slices_us;  ///< that slices of K take beside their part of it
  std::int64_t least_rows;  ///< from so many on it goes before those for fewer rows; 0: those go first
};
/// All, those with least_rows first, then those for fewer rows. `select` takes the first that fits: of those of
/// extensions, then of T0.
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
