#pragma once
// What dispatch sends: rows, and the tensors that travel with them.
#include "host/npu/distribute.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {

/// Rows of tokens or of (token, expert) pairs; in slabs when they travel. Absent tensors do not travel.
struct Parcel {
  TensorView rows, scales;  ///< codes with their scales, or rows as they are
  TensorView weights;       ///< one for each pair of a row
  TensorView slots;         ///< i32: the number of the row in its rank, times `divisor` of window_slots::Sources
  TensorView owners;        ///< i32, one for each pair of a row; -1: no owner

  static constexpr TensorView Parcel::*parts[] = {&Parcel::rows, &Parcel::scales, &Parcel::weights, &Parcel::slots,
                                                  &Parcel::owners};

  std::vector<Piece> to(const Parcel& there) const {
    std::vector<Piece> pieces;
    for (const auto part : parts)
      if ((this->*part).present()) pieces.push_back({this->*part, there.*part});
    return pieces;
  }
  /// Memory to receive such slabs. Places that receive no row have no owners.
  Parcel window(Steps& steps) const {
    Parcel there;
    for (const auto part : parts)
      if ((this->*part).present()) there.*part = window_like(steps, this->*part);
    if (owners.present()) steps.fill(there.owners, 0xFFFFFFFFU);
    return there;
  }
};

/// Scratch for `count` rows, each like a row of `view`.
inline TensorView room_for(Steps& steps, std::int64_t count, const TensorView& view, DType dtype) {
  return view.rank == 1 ? steps.scratch(dtype, {count}) : steps.scratch(dtype, {count, view.shape[1]});
}

/// As move_rows. The rows of a vector are single numbers.
inline void move_all(Steps& steps, const TensorView& from, const TensorView& index, std::int32_t divisor,
                     const TensorView& row_ends, const TensorView& to) {
  const auto matrix = [](const TensorView& view) { return view.rank == 1 ? as_column(view) : view; };
  move_rows(steps, {matrix(from), index, divisor, row_ends, 0, {}, {}}, matrix(to));
}

/// Sends each row once to every server that owns one of its pairs, to the rank there with the sender's index. That rank
/// forwards the row to every rank of its server that owns one of the pairs.
/// @param own  without slots. @param by_owner  cumulative ends of this rank's pairs, sorted by owner
/// @param all_ends  out: by_owner of all ranks. Shape: [ranks, owners]
/// @return  one slab for the rows of each rank
Parcel server_by_server(Steps& steps, const Distribution& d, const Parcel& own, const TensorView& by_owner,
                        Communicator* ranks, TensorView& all_ends);

}  // namespace moecl::npu
