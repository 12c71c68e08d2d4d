#pragma once
// A placement plan on a device. It maps the experts that a router chose to places.
#include <moecl/buffer.hpp>
#include <moecl/lost_experts.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/tensor_view.hpp>

#include <list>
#include <vector>

namespace moecl {

class ExpertPlaces {
 public:
  /// Stops the host. A plan that is empty or moves no expert costs nothing, now or in passes, unless there are
  /// `special` experts. Their ids follow the `experts` of the plan, and they have no place.
  ExpertPlaces(StreamView stream, const PlacementPlan& plan, std::int32_t experts, std::int32_t special);
  ExpertPlaces(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost,
               std::int32_t special);

  /// Passes that are enqueued on the stream from now on use the new plan and table. Async: one write
  void update(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost);

  /// Whether some expert is not at the place of its own number.
  bool present() const noexcept { return places_.present(); }
  /// Whether experts are gone, so that `find` changes the weights of tokens that chose them.
  bool masks() const noexcept { return lost_ == LostExperts::masked && lacks_; }
  /// Whether some expert has several places. The number of the token then selects one.
  bool depends_on_token() const noexcept { return places_.present() && places_.shape[1] > 1; }
  /// Async: one kernel. @param ids  Shape: [T, K] i32. @param physical  out. Shape: [T, K] i32
  /// @param weights, placed  if it `masks`: `weights`, `placed_weights` of physical_experts. Shape: [T, K] f32
  void find(StreamView stream, TensorView ids, TensorView weights, std::int64_t first_token, TensorView physical,
            TensorView placed, TensorView fault) const;

 private:
  /// A table whose write to the device may be under way.
  struct Written {
    std::vector<std::int32_t> values;
    Event done;
  };
  std::int32_t experts_ = 0, special_ = 0;
  LostExperts lost_ = LostExperts::refused;
  bool lacks_ = false;
  Buffer memory_;
  TensorView places_, replicas_;
  std::list<Written> written_;
};

}  // namespace moecl
