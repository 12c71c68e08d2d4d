#pragma once
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Reports of bad data that only the device sees. Operators that take a `fault` tensor, i32[4], write a FaultWord to it
/// and continue without out-of-bounds accesses. Zero the word before and read it after: it keeps the first fault.
namespace moecl {

/// What was wrong. Each entry says what `index` and `value` of the FaultWord mean.
enum class FaultCode : std::int32_t {
  none = 0,
  expert_id_out_of_range,  ///< index: slot, value: the id
  expert_over_capacity,    ///< index: slot, value: the expert, which has more rows than the batched layout has room for
  key_out_of_range,        ///< index: slot, value: the sort key
  index_out_of_range,      ///< index: position in the list of indices, value: the index (cut to 32 bits)
  group_count_negative,    ///< index: entry of the group list, value: the count (of a cumulative list: its step)
  group_id_out_of_order,   ///< index: pair of the group list, value: the id; ids must ascend and be experts'
  group_sum_too_large,     ///< index: expert at which the sum exceeds the rows, value: the rows
  group_sum_too_small,     ///< index: sum of the group list, value: the rows that it must equal
  expert_repeated,         ///< index: slot, value: the id, which an earlier slot of the token has too
  mask_not_a_prefix,       ///< index: token, value: its mask; active tokens must come first
  other_call,              ///< index: place in a window, value: its content; a combine got another dispatch's row info
  peer_late,               ///< index: rank, value: the step that it did not signal in time
  group_late,              ///< index: work-group that came too late, in a launch whose work-groups wait for each other
  expert_gone,             ///< index: slot, value: the expert, which has no place at present
  group_too_large  ///< index: entry of the group list, value: its rows (cut to 32 bits), more than there is room for
};

/// What a `fault` tensor holds: four i32, zero while nothing was wrong.
struct FaultWord {
  FaultCode code = FaultCode::none;
  std::int32_t index = 0, value = 0, reserved = 0;
};

/// What the word says, with its numbers; empty when there is no fault.
std::string describe(const FaultWord& word);
/// Reads a fault word and throws the fault that it holds. Stops the host.
/// Errors: invalid_argument  the word holds a fault, or is no i32[4]
void check_fault(StreamView stream, TensorView fault);

}  // namespace moecl
