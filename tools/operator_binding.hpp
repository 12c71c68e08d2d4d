#pragma once
// Makes a recorded case into a call of its operator.
#include <functional>

#include "host/npu/operator.hpp"
#include "tools/operator_case.hpp"

namespace moecl::cli {

/// The prefix of a rank's tensors in a call of several ranks, "rank3."; empty for -1, a call of one rank.
std::string prefix_of(std::int64_t rank);

/// Binds the case's operator to its parameters and inputs; its outputs have no memory yet.
/// @param rank  as in prefix_of. @param place  puts an input, which is in host memory, where the call finds it
/// Errors: unsupported  no such operator; invalid_argument, invalid_data  the case does not suit it
std::unique_ptr<npu::BoundCall> bind_case(const OperatorCase& from, std::int64_t rank,
                                          const std::function<BufferView(const HostTensor&)>& place);

}  // namespace moecl::cli
