#pragma once
#include <moecl/router_spec.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

struct TopK {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
};

/// Routes one token: `logits` and `bias` (empty: none) have E entries.
TopK gating_top_k(const std::vector<double>& logits, const std::vector<double>& bias, const RouterSpec& spec);

}  // namespace moecl::test::oracle
