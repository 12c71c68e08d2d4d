#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

struct CombineInput {
  std::size_t hidden = 0, top_k = 0;
  std::vector<double> rows;             ///< [R, H]
  std::vector<std::int32_t> slot_rows;  ///< [T * K]
  std::vector<double> weights;          ///< [T, K], or empty
  std::vector<double> shared;           ///< [T, H], or empty
  std::vector<double> shared_gate;      ///< [T], or empty
  bool skip_zero_weights = false;
  bool column_slots = false;                ///< the slot of (t, k) is k * T + t
  std::vector<double> bias = {};            ///< [E, H], or empty
  std::vector<std::int32_t> bias_ids = {};  ///< [T, K]
  std::vector<double> residual = {};        ///< [T, H], or empty
};

/// [T, H]
std::vector<double> combine(const CombineInput& in);

}  // namespace moecl::test::oracle
