#pragma once
#include <moecl/operator_cost.hpp>

#include <array>
#include <string>

namespace moecl {

/// How a kernel is launched, but for its operands. An operator's `plan` decides it once; `enqueue` takes it for all
/// arguments of one form: types, shapes, strides, and what they are multiples of. Where they stand may differ.
struct LaunchPlan {
  std::string variant;                         ///< as the trace names it
  std::string options;                         ///< -D definitions of the kernel's program
  std::array<std::size_t, 3> global{1, 1, 1};  ///< work-items
  std::array<std::size_t, 3> local{1, 1, 1};   ///< of a work-group
  std::string shape;                           ///< of the operands, for people
  OperatorCost cost;

  /// "row_per_item: f32[8, 64], [8, 1, 1] by [1, 1, 1], -DLANES=1"
  std::string describe() const {
    const auto extent = [](const std::array<std::size_t, 3>& of) {
      return '[' + std::to_string(of[0]) + ", " + std::to_string(of[1]) + ", " + std::to_string(of[2]) + ']';
    };
    return variant + ": " + shape + ", " + extent(global) + " by " + extent(local) + ", " + options;
  }
};

}  // namespace moecl
