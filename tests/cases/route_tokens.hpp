#pragma once
#include <moecl/route_tokens.hpp>

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
  std::int32_t finished_id = -1;            ///< an expert's id, which finished tokens have in every slot
  std::int64_t hidden = 0;                  ///< 0: logits are given, else the router computes them from x
  DType dtype = DType::bf16;
  std::vector<double> x = {}, router = {}, router_bias = {};  ///< [T, H], [E, H], and [E] or empty

  /// A case with random tokens and a random router.
  static RouteTokensCase routed(std::int64_t tokens, std::int32_t experts, std::int64_t hidden, const RouterSpec& spec,
                                DType dtype = DType::bf16, bool biased = false);
  std::int64_t tokens() const { return static_cast<std::int64_t>(logits.size()) / experts; }
  std::int32_t all_experts() const { return experts + spec.fused_shared_experts; }
  std::int64_t rows() const { return rows_per_expert == 0 ? tokens() * spec.top_k : all_experts() * rows_per_expert; }
  std::string describe() const;

  using Args = route_tokens::Args;
  struct Expected {
    std::vector<std::int32_t> ids;
    std::vector<double> weights;
    oracle::SortedSlots sort;
  };
  Args bring(CaseTensors& tensors) const;
  /// Finished tokens choose no expert: their slots have `finished_id`.
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
