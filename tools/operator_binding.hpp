#pragma once
// A recorded call as the call of an operator.
#include <functional>

#include "host/npu/operator.hpp"
#include "tools/operator_case.hpp"

namespace moecl::cli {

/// "rank3." before the tensors of a rank in a call by several; nothing for -1: the only one's.
std::string prefix_of(std::int64_t rank);

/// The case's operator with its parameters and inputs, and outputs without memory.
/// @param rank   Whose tensors, as in prefix_of. @param place  Puts an input, which is in memory, where the call finds
/// it Errors: unsupported  no such operator; invalid_argument, invalid_data  the case does not suit it
std::unique_ptr<npu::BoundCall> bind_case(const OperatorCase& from, std::int64_t rank,
                                          const std::function<BufferView(const HostTensor&)>& place);

}  // namespace moecl::cli
