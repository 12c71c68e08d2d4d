#pragma once
#include <moecl/buffer.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace moecl {

/// What a pass is for.
enum class Phase : std::uint8_t { prefill, decode };

/// Rows that the places of one rank were given, by layer and phase.
struct PlaceLoads {
  std::int64_t layers = 0, places = 0;
  std::vector<std::int64_t> rows;  ///< Shape: [layers, 2, places]; the phases in the order of `Phase`

  /// Shape: [places]. Of both phases without one
  std::vector<std::int64_t> of(std::int64_t layer, std::optional<Phase> phase = std::nullopt) const;
};

/// Loads of a rank's experts, counted on its device by the passes that are given its tensors
/// (MoeOutputs::expert_load). Nobody waits for anybody: who wants to know asks, and looks later.
///
/// Threads: one at a time.
class LoadRecord {
 public:
  /// Counts from zero. Async: a fill on the stream
  /// @param places  experts of this rank
  LoadRecord(StreamView stream, std::int64_t layers, std::int64_t places);
  ~LoadRecord();
  LoadRecord(LoadRecord&&) noexcept;
  LoadRecord& operator=(LoadRecord&&) noexcept;

  /// For MoeForward::expert_load of passes of that layer and phase. Shape: [places] i64
  TensorView counts(std::int64_t layer, Phase phase) const;
  /// Copies what passes before on the stream have counted, unless the copy asked for before is still under way.
  /// Async: one copy. Count from zero again after it: `and_clear`
  void ask(StreamView stream, bool and_clear = false);
  /// What was asked for last, if it has come; never waits. Errors: device_error
  std::optional<PlaceLoads> told() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads of places as those of the experts that stand there; those of free places are nobody's.
/// @param of_places  [P], or fewer: those from `first_place` on. @return  Shape: [L]
/// Errors: invalid_argument  more places than the plan has
std::vector<std::int64_t> loads_of_experts(const PlacementPlan& plan, const std::vector<std::int64_t>& of_places,
                                           std::int64_t first_place = 0);

}  // namespace moecl
