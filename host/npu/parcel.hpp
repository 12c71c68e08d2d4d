#pragma once
// What dispatch sends: rows with all that goes with them.
#include "host/npu/distribute.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {

/// Rows of tokens, or of single pairs; in slabs where they travel. What is absent does not.
struct Parcel {
  TensorView rows, scales;  ///< codes with their scales, or rows as they are
  TensorView weights;       ///< of each pair of a row
  TensorView slots;         ///< i32: which row of its rank it is, times `divisor` of window_slots::Sources
  TensorView owners;        ///< i32, of each pair of a row, -1 where there is none

  static constexpr TensorView Parcel::*parts[] = {&Parcel::rows, &Parcel::scales, &Parcel::weights, &Parcel::slots,
                                                  &Parcel::owners};

  std::vector<Piece> to(const Parcel& there) const {
    std::vector<Piece> pieces;
    for (const auto part : parts)
      if ((this->*part).present()) pieces.push_back({this->*part, there.*part});
    return pieces;
  }
  /// Memory for what comes in such slabs. Nobody owns what does not come.
  Parcel window(Steps& steps) const {
    Parcel there;
    for (const auto part : parts)
      if ((this->*part).present()) there.*part = window_like(steps, this->*part);
    if (owners.present()) steps.fill(there.owners, 0xFFFFFFFFU);
    return there;
  }
};

/// Memory for `count` of them, each like one of `view`.
inline TensorView room_for(Steps& steps, std::int64_t count, const TensorView& view, DType dtype) {
  return view.rank == 1 ? steps.scratch(dtype, {count}) : steps.scratch(dtype, {count, view.shape[1]});
}

/// As move_rows, where rows may be single numbers.
inline void move_all(Steps& steps, const TensorView& from, const TensorView& index, std::int32_t divisor,
                     const TensorView& row_ends, const TensorView& to) {
  const auto matrix = [](const TensorView& view) { return view.rank == 1 ? as_column(view) : view; };
  move_rows(steps, {matrix(from), index, divisor, row_ends, 0, {}, {}}, matrix(to));
}

/// A row crosses to each server that has an owner of it once, to the rank there that has its own rank's index; that one
/// hands it on to each rank of its server that has one.
/// @param own  Without slots. @param by_owner  ends of this rank's pairs by owner
/// @param all_ends  out: those of all ranks. Shape: [ranks, owners]
/// @return  a slab of each rank's rows
Parcel server_by_server(Steps& steps, const Distribution& d, const Parcel& own, const TensorView& by_owner,
                        Communicator* ranks, TensorView& all_ends);

}  // namespace moecl::npu
