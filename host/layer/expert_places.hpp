#pragma once
// A placement plan on a device: turns the experts that a router chose into places.
#include <moecl/buffer.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/tensor_view.hpp>

namespace moecl {

class ExpertPlaces {
 public:
  /// Stops the host. An empty plan, and one that moves no expert, costs nothing then and later, unless there are
  /// `special` experts after the `experts` of the plan: those stand nowhere.
  ExpertPlaces(StreamView stream, const PlacementPlan& plan, std::int32_t experts, std::int32_t special);

  /// Some expert does not stand at the place of its number.
  bool present() const noexcept { return places_.present(); }
  /// Some expert has a choice of places, which depends on the number of the token.
  bool depends_on_token() const noexcept { return places_.present() && places_.shape[1] > 1; }
  /// Async: one kernel. @param ids  Shape: [T, K] i32. @param physical  out. Shape: [T, K] i32
  void find(StreamView stream, TensorView ids, std::int64_t first_token, TensorView physical, TensorView fault) const;

 private:
  Buffer memory_;
  TensorView places_, replicas_;
};

}  // namespace moecl
