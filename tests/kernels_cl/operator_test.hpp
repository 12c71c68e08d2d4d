#pragma once
// The common base of all tests that run an operator on its cases.
#include <iterator>
#include <vector>

#include "tests/cases/operands.hpp"
#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

/// Tests of one operator by its cases.
template <class Of>
class OperatorTest : public OnEveryDevice {
 protected:
  /// Runs the case with each number of lanes, and expects the oracle's result in every output.
  void check(const Of& of,
             const std::vector<std::int32_t>& lanes = {std::begin(lane_choices), std::end(lane_choices)}) const {
    OperandsOf operands(device().stream, of, Guards::around);
    for (const std::int32_t count : lanes)
      for (const Compared& output : operands.run(count))
        EXPECT_TRUE(output.ok()) << of.describe() << ", lanes = " << count << ": " << output.describe();
  }
};

}  // namespace moecl::test
