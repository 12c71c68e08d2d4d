#pragma once
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Bad data that only the device sees. Operators that take a `fault` tensor, i32[4], write a FaultWord there and go on
/// without touching memory that is not theirs. Zero the word before, read it after: the first fault stays.
namespace moecl {

/// What was wrong, and what index and value of the FaultWord are.
enum class FaultCode : std::int32_t {
  none = 0,
  expert_id_out_of_range,  ///< index: slot, value: the id
  expert_over_capacity,    ///< index: slot, value: the expert, which has more rows than its batch has room for
  key_out_of_range,        ///< index: slot, value: the sort key
  index_out_of_range,      ///< index: place in the list of indices, value: the index (cut to 32 bits)
  group_count_negative,    ///< index: entry of the group list, value: the count (of a cumulative list: its step)
  group_id_out_of_order,   ///< index: pair of the group list, value: the id, which must ascend and be an expert's
  group_sum_too_large,     ///< index: expert with which the sum passes the rows, value: the rows
  group_sum_too_small,     ///< index: sum of the group list, value: the rows it must make
  expert_repeated,         ///< index: slot, value: the id, which the token has in an earlier column too
  mask_not_a_prefix,       ///< index: token, value: its mask; active tokens must come first
  other_call,              ///< index: place in a window, value: what came there; a combine got another dispatch's info
  peer_late,               ///< index: rank, value: the step that it did not signal in time
  group_late,              ///< index: work-group of a launch whose groups wait for each other, and which did not come
  expert_gone,             ///< index: slot, value: the expert, which stands nowhere at present
  group_too_large  ///< index: entry of the group list, value: its rows (cut to 32 bits), more than there is room
};

/// What a `fault` tensor holds: four i32, zero while nothing was wrong.
struct FaultWord {
  FaultCode code = FaultCode::none;
  std::int32_t index = 0, value = 0, reserved = 0;
};

/// What the word says, with its numbers; empty when there is no fault.
std::string describe(const FaultWord& word);
/// Reads a fault word and throws what it says. Stops the host.
/// Errors: invalid_argument  the word holds a fault, or is no i32[4]
void check_fault(StreamView stream, TensorView fault);

}  // namespace moecl
