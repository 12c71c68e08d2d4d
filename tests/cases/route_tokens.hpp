#pragma once
#include <moecl/route_tokens.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::test {

struct RouteTokensCase {
  std::int32_t experts = 0;
  std::vector<double> logits = {};  ///< [T, E]
  std::vector<double> bias = {};    ///< [E], or empty
  RouterSpec spec = {};
  std::int64_t rows_per_expert = 0;         ///< 0: standard layout
  std::vector<std::uint8_t> finished = {};  ///< [T], or empty

  std::int64_t tokens() const { return static_cast<std::int64_t>(logits.size()) / experts; }
  std::string describe() const;

  struct Routed {
    std::vector<std::int32_t> ids;
    std::vector<double> weights;
    oracle::SortedSlots sort;
  };
  /// Finished tokens choose no expert.
  Routed expected() const;
};

class RouteTokensOperands : public CaseOperands {
 public:
  using Case = RouteTokensCase;
  RouteTokensOperands(StreamView stream, RouteTokensCase of, Guards guards = Guards::none);

  route_tokens::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  RouteTokensCase case_;
  std::optional<RouteTokensCase::Routed> expected_;
};

}  // namespace moecl::test
