#include <moecl/fault.hpp>

#include "kernels_cl/common/shared_codes.h"
#include "runtime/check.hpp"

namespace moecl {

static_assert(EXPERT_ID_OUT_OF_RANGE == static_cast<int>(FaultCode::expert_id_out_of_range));
static_assert(EXPERT_OVER_CAPACITY == static_cast<int>(FaultCode::expert_over_capacity));
static_assert(KEY_OUT_OF_RANGE == static_cast<int>(FaultCode::key_out_of_range));
static_assert(INDEX_OUT_OF_RANGE == static_cast<int>(FaultCode::index_out_of_range));
static_assert(GROUP_COUNT_NEGATIVE == static_cast<int>(FaultCode::group_count_negative));
static_assert(GROUP_ID_OUT_OF_ORDER == static_cast<int>(FaultCode::group_id_out_of_order));
static_assert(GROUP_SUM_TOO_LARGE == static_cast<int>(FaultCode::group_sum_too_large));
static_assert(GROUP_SUM_TOO_SMALL == static_cast<int>(FaultCode::group_sum_too_small));
static_assert(EXPERT_REPEATED == static_cast<int>(FaultCode::expert_repeated));
static_assert(MASK_NOT_A_PREFIX == static_cast<int>(FaultCode::mask_not_a_prefix));
static_assert(OTHER_CALL == static_cast<int>(FaultCode::other_call));
static_assert(PEER_LATE == static_cast<int>(FaultCode::peer_late));
static_assert(GROUP_LATE == static_cast<int>(FaultCode::group_late));
static_assert(EXPERT_GONE == static_cast<int>(FaultCode::expert_gone));
static_assert(GROUP_TOO_LARGE == static_cast<int>(FaultCode::group_too_large));

std::string describe(const FaultWord& word) {
  switch (word.code) {
    case FaultCode::none:
      return {};
    case FaultCode::expert_id_out_of_range:
      return fmt::format("slot {} asks for expert {}, which does not exist", word.index, word.value);
    case FaultCode::expert_over_capacity:
      return fmt::format("slot {} overflows expert {} of the batched layout", word.index, word.value);
    case FaultCode::key_out_of_range:
      return fmt::format("slot {} has the sort key {}, which is out of range", word.index, word.value);
    case FaultCode::index_out_of_range:
      return fmt::format("index {} of the list is {}, which is out of range", word.index, word.value);
    case FaultCode::group_count_negative:
      return fmt::format("group list: entry {} makes the negative count {}", word.index, word.value);
    case FaultCode::group_id_out_of_order:
      return fmt::format("group list: pair {} has expert {}; ids must ascend and exist", word.index, word.value);
    case FaultCode::group_sum_too_large:
      return fmt::format("group list: with expert {} the sum passes the {} rows there are", word.index, word.value);
    case FaultCode::group_sum_too_small:
      return fmt::format("group list: the sum is {}, expected the {} rows there are", word.index, word.value);
    case FaultCode::expert_repeated:
      return fmt::format("slot {} asks for expert {}, as an earlier slot of its token does", word.index, word.value);
    case FaultCode::mask_not_a_prefix:
      return fmt::format("the mask is {} at token {}: active tokens must come first", word.value, word.index);
    case FaultCode::other_call:
      return fmt::format("place {} holds {}: the row information is not of the dispatch with these expert ids and mask",
                         word.index, word.value);
    case FaultCode::peer_late:
      return fmt::format("rank {} did not signal step {} of the exchange in time", word.index, word.value);
    case FaultCode::group_late:
      return fmt::format("work-group {} of a launch did not come to the others in time", word.index);
    case FaultCode::expert_gone:
      return fmt::format("slot {} asks for expert {}, which has no place at present", word.index, word.value);
    case FaultCode::group_too_large:
      return fmt::format("group list: entry {} has {} rows, more than it has room for", word.index, word.value);
  }
  return fmt::format("the fault word holds an unknown code {}", static_cast<std::int32_t>(word.code));
}

void check_fault(StreamView stream, TensorView fault) {
  expect_tensor(fault, "fault", DType::i32, {4});
  FaultWord word;
  read_blocking(stream, fault.buffer, &word, sizeof(word));
  const std::string text = describe(word);
  require(text.empty(), "{}", text);
}

}  // namespace moecl
