#pragma once
// A placement plan on a device: turns the experts that a router chose into places.
#include <moecl/buffer.hpp>
#include <moecl/lost_experts.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/tensor_view.hpp>

#include <list>
#include <vector>

namespace moecl {

class ExpertPlaces {
 public:
  /// Stops the host. An empty plan, and one that moves no expert, costs nothing then and later, unless there are
  /// `special` experts after the `experts` of the plan: those stand nowhere.
  ExpertPlaces(StreamView stream, const PlacementPlan& plan, std::int32_t experts, std::int32_t special);
  ExpertPlaces(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost,
               std::int32_t special);

  /// Passes on the stream from here on go by these. Async: two writes
  void update(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost);

  /// Some expert does not stand at the place of its number.
  bool present() const noexcept { return places_.present(); }
  /// Weights of a token change where experts have gone.
  bool masks() const noexcept { return lost_ == LostExperts::masked && lacks_; }
  /// Some expert has a choice of places, which depends on the number of the token.
  bool depends_on_token() const noexcept { return places_.present() && places_.shape[1] > 1; }
  /// Async: one kernel. @param ids  Shape: [T, K] i32. @param physical  out. Shape: [T, K] i32
  /// @param weights, placed  where it `masks`: as in physical_experts. Shape: [T, K] f32
  void find(StreamView stream, TensorView ids, TensorView weights, std::int64_t first_token, TensorView physical,
            TensorView placed, TensorView fault) const;

 private:
  /// What is on its way to the device.
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
