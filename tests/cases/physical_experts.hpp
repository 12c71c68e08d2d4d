#pragma once
#include <moecl/physical_experts.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct PhysicalExpertsCase {
  std::int64_t top_k = 1;
  std::vector<std::int32_t> ids = {};                  ///< [T, K]
  std::vector<std::vector<std::int32_t>> places = {};  ///< of each expert
  std::int64_t most_places = 0;                        ///< columns of the table; 0: as many as are needed
  std::int64_t first_token = 0;

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()) / top_k; }
  std::string describe() const;

  using Args = physical_experts::Args;
  using Expected = std::vector<std::int32_t>;
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
