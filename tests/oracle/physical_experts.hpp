#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// The place of each slot's expert, or -1. @param ids  [T * K]. @param places  all places of each expert
std::vector<std::int32_t> physical_experts(const std::vector<std::int32_t>& ids, std::int64_t top_k,
                                           const std::vector<std::vector<std::int32_t>>& places,
                                           std::int64_t first_token);

}  // namespace moecl::test::oracle
