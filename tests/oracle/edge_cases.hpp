#pragma once
// The one list of edge cases that every operator is tested on.
#include <cstdint>
#include <string>
#include <vector>

namespace moecl::test {

/// Lanes of CPUs (1) and of GPUs (64). One source serves both, so each device must be right with both.
inline constexpr std::int32_t lane_choices[] = {1, 64};
/// Tokens or rows: none, one, one past 64.
inline constexpr std::int64_t row_counts[] = {0, 1, 65};
/// Columns: one, a vector of 16 and its neighbours, an odd size past 64 lanes of 16.
inline constexpr std::int64_t widths[] = {1, 15, 16, 17, 1037};

/// Which rows of an expert-ordered matrix hold data.
struct ValidRows {
  std::vector<std::int32_t> row_ends;
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout
  std::vector<bool> valid;           ///< [R]
};
/// Both layouts, with empty experts first, in the middle and last, with a full expert, with rows past the valid ones,
/// and without any valid row.
std::vector<ValidRows> valid_rows();

/// Expert ids of T tokens.
struct Routing {
  std::string name;
  std::int64_t tokens = 0, top_k = 0;
  std::int32_t experts = 0;
  std::vector<std::int32_t> ids;  ///< [T, K], distinct within a token
};
/// T = 0, 1 and one past 64; all tokens on one expert; experts without tokens; K = E; one expert.
std::vector<Routing> routings();

/// Logits of one token for E >= 4 experts: all equal, ties, -0 and 0, NaN here and everywhere, each infinity.
std::vector<std::vector<double>> hard_logits(std::size_t experts);

}  // namespace moecl::test
