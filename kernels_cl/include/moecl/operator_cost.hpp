#pragma once
#include <cstdint>

namespace moecl {

/// The minimum work of an operator, for rooflines and traces.
struct OperatorCost {
  std::uint64_t bytes = 0;  ///< each input read once, each output written once
  std::uint64_t flops = 0;  ///< a multiply-add counts as two
};

}  // namespace moecl
