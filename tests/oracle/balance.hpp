#pragma once
#include <moecl/balance.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// The expert at each place for BalancePolicy::deepseek, by the description of deepseek-ai/EPLB alone. Shape: [L, P]
std::vector<std::int32_t> deepseek_eplb(const BalanceProblem& problem);

}  // namespace moecl::test::oracle
