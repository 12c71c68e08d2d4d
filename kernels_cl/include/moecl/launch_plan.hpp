#pragma once
#include <moecl/operator_cost.hpp>

#include <array>
#include <string>

namespace moecl {

/// How a kernel is launched: everything but its operands. An operator's `plan` decides it once. `enqueue` then takes it
/// for all arguments of the same form: the same types, shapes, strides and alignment. Their addresses may differ.
struct LaunchPlan {
  std::string variant;                         ///< its name in the trace
  std::string options;                         ///< -D definitions of the kernel's program
  std::array<std::size_t, 3> global{1, 1, 1};  ///< work-items
  std::array<std::size_t, 3> local{1, 1, 1};   ///< work-items of a work-group
  std::string shape;                           ///< of the operands, as text for people
  OperatorCost cost;

  /// For example "row_per_item: f32[8, 64], [8, 1, 1] by [1, 1, 1], -DLANES=1"
  std::string describe() const {
    const auto extent = [](const std::array<std::size_t, 3>& of) {
      return '[' + std::to_string(of[0]) + ", " + std::to_string(of[1]) + ", " + std::to_string(of[2]) + ']';
    };
    return variant + ": " + shape + ", " + extent(global) + " by " + extent(local) + ", " + options;
  }
};

}  // namespace moecl
