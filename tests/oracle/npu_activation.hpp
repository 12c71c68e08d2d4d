#pragma once
#include <cstdint>
#include <vector>

namespace moecl::oracle {

/// npu_swiglu of [outer, 2 * inner]: swish of the first half of each row times its second half, in double.
std::vector<double> swiglu(const std::vector<double>& x, std::int64_t outer, std::int64_t inner);

}  // namespace moecl::oracle
