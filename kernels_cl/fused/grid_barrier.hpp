#pragma once
// The arguments of kernels whose work-groups wait for each other (grid_barrier.clh).
#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/stamps.hpp"
#include "kernels_cl/fused/grid_barrier_args.h"

namespace moecl {

static_assert(int{MEETINGS} <= int{LAUNCH_STAMPS});

/// The arguments of the next launch. @param words  Shape: [work-groups that are awaited] i64
inline grid_barrier_args next_grid_barrier(const TensorView& words, std::int32_t patience) {
  return {
      .words_first = first_element(words), .stamp = static_cast<long>(next_stamps()), .patience = patience, .pad = 0};
}

}  // namespace moecl
