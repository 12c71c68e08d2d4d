#pragma once
#include <moecl/physical_experts.hpp>

#include <optional>

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
};

class PhysicalExpertsOperands : public CaseOperands {
 public:
  using Case = PhysicalExpertsCase;
  PhysicalExpertsOperands(StreamView stream, PhysicalExpertsCase of, Guards guards = Guards::none);

  physical_experts::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  PhysicalExpertsCase case_;
  std::optional<std::vector<std::int32_t>> expected_;
};

}  // namespace moecl::test
