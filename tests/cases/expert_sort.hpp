#pragma once
#include <moecl/expert_sort.hpp>

#include "tests/cases/operands.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::test {

struct ExpertSortCase {
  std::int64_t tokens = 0, top_k = 1;
  std::int32_t first = 0, end = 0, total = 0;  ///< the experts [first, end) of `total`
  std::int64_t rows_per_expert = 0;            ///< 0: standard layout
  bool may_drop = false;
  std::vector<std::int32_t> ids = {};  ///< [T, K]

  std::int64_t rows() const { return rows_per_expert == 0 ? tokens * top_k : (end - first) * rows_per_expert; }
  std::string describe() const;

  using Args = expert_sort::Args;
  using Expected = oracle::SortedSlots;
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
