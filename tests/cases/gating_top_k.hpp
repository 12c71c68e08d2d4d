#pragma once
#include <moecl/gating_top_k.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {

struct GatingTopKCase {
  std::int64_t experts = 0;
  std::vector<double> logits = {};  ///< [T, E]
  std::vector<double> bias = {};    ///< [E], or empty
  RouterSpec spec = {};
  DType dtype = DType::f32;

  std::int64_t tokens() const { return static_cast<std::int64_t>(logits.size()) / experts; }
  std::string describe() const;
  /// Of all tokens: [T, K].
  oracle::TopK expected() const;
};

class GatingTopKOperands : public CaseOperands {
 public:
  using Case = GatingTopKCase;
  GatingTopKOperands(StreamView stream, GatingTopKCase of, Guards guards = Guards::none);

  gating_top_k::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  GatingTopKCase case_;
  std::optional<oracle::TopK> expected_;
};

}  // namespace moecl::test
