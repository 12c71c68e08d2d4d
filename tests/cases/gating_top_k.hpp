#pragma once
#include <moecl/gating_top_k.hpp>

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

  using Args = gating_top_k::Args;
  using Expected = oracle::TopK;
  Args bring(CaseTensors& tensors) const;
  /// Of all tokens: [T, K].
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
