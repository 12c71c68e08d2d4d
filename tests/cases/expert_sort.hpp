#pragma once
#include <moecl/expert_sort.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::test {

struct ExpertSortCase {
  std::int64_t tokens = 0, top_k = 1;
  std::int32_t first = 0, end = 0, total = 0;  ///< the experts [first, end) of so many
  std::int64_t rows_per_expert = 0;            ///< 0: standard layout
  bool may_drop = false;
  std::vector<std::int32_t> ids = {};  ///< [T, K]

  std::string describe() const;
};

class ExpertSortOperands : public CaseOperands {
 public:
  using Case = ExpertSortCase;
  ExpertSortOperands(StreamView stream, ExpertSortCase of, Guards guards = Guards::none);

  expert_sort::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  ExpertSortCase case_;
  Buffer scratch_;
  std::optional<oracle::SortedSlots> expected_;
};

}  // namespace moecl::test
