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

/// Rows that each place of one rank received, by layer and phase.
struct PlaceLoads {
  std::int64_t layers = 0, places = 0;
  std::vector<std::int64_t> rows;  ///< Shape: [layers, 2, places]; the phases in the order of `Phase`

  /// Rows by place of one layer. Shape: [places]. Without `phase`: the sum of both phases
  std::vector<std::int64_t> of(std::int64_t layer, std::optional<Phase> phase = std::nullopt) const;
};

/// Loads of a rank's experts. Passes that get a tensor of this record (MoeOutputs::expert_load) count on the device.
/// Neither side waits: `ask` enqueues a copy of the counts, and `told` returns it once it has come.
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
  /// Copies the counts of all passes enqueued on the stream before, unless the last copy is still under way.
  /// Async: one copy. `and_clear`: counting starts from zero again after the copy
  void ask(StreamView stream, bool and_clear = false);
  /// The counts that `ask` copied last, if the copy is complete; never waits. Errors: device_error
  std::optional<PlaceLoads> told() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads of experts: for each, the sum over the places that hold it. Loads of free places are left out.
/// @param of_places  Loads of [P] places, or of fewer: those from `first_place` on. @return  Shape: [L]
/// Errors: invalid_argument  more places than the plan has
std::vector<std::int64_t> loads_of_experts(const PlacementPlan& plan, const std::vector<std::int64_t>& of_places,
                                           std::int64_t first_place = 0);

}  // namespace moecl
