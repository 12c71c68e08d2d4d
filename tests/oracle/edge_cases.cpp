#include "tests/oracle/edge_cases.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace moecl::test {
namespace {

ValidRows standard(std::vector<std::int32_t> row_ends, std::size_t rows) {
  ValidRows out{std::move(row_ends), 0, std::vector<bool>(rows)};
  std::fill_n(out.valid.begin(), out.row_ends.back(), true);
  return out;
}

ValidRows batched(std::vector<std::int32_t> row_ends, std::int64_t rows_per_expert) {
  ValidRows out{std::move(row_ends), rows_per_expert, {}};
  std::int32_t before = 0;
  for (const std::int32_t end : out.row_ends) {
    for (std::int64_t i = 0; i < rows_per_expert; ++i) out.valid.push_back(i < end - before);
    before = end;
  }
  return out;
}

Routing uniform(std::string name, std::int64_t tokens, std::int64_t top_k, std::int32_t experts) {
  Routing out{std::move(name), tokens, top_k, experts, {}};
  std::mt19937_64 engine(static_cast<std::uint64_t>(tokens * 1000 + top_k));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(experts));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(ids.begin(), ids.end(), engine);
    out.ids.insert(out.ids.end(), ids.begin(), ids.begin() + top_k);
  }
  return out;
}

}  // namespace

std::vector<ValidRows> valid_rows() {
  return {standard({0, 3, 3, 5, 5}, 9), standard({7}, 7), standard({0, 0}, 4), batched({0, 3, 3, 5, 5}, 3),
          batched({4}, 4)};
}

std::vector<Routing> routings() {
  std::vector<Routing> out = {uniform("no tokens", 0, 2, 8), uniform("one token", 1, 8, 128),
                              uniform("one past 64 tokens", 65, 3, 60), uniform("every expert chosen", 7, 5, 5),
                              uniform("one expert", 3, 1, 1)};
  out.push_back({"all on one expert", 40, 1, 8, std::vector<std::int32_t>(40, 5)});
  out.push_back({"experts without tokens", 30, 2, 200, {}});
  for (std::int32_t t = 0; t < 30; ++t) out.back().ids.insert(out.back().ids.end(), {199 - t % 2, 100});
  return out;
}

std::vector<std::vector<double>> hard_logits(std::size_t experts) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  std::vector<std::vector<double>> out(10, std::vector<double>(experts, 0.5));  // 0: all equal
  for (std::size_t e = 0; e < experts; ++e) {
    out[1][e] = e % 2 == 0 ? -1.0 : 1.0;  // two values
    out[2][e] = e % 2 == 0 ? 0.0 : -0.0;
    out[3][e] = e % 3 == 0 ? nan : static_cast<double>(e % 5);
    out[4][e] = nan;
    out[5][e] = -infinity;
    out[6][e] = e % 4 == 3 ? infinity : static_cast<double>(e % 7);
    out[7][e] = e % 2 == 0 ? -infinity : nan;
    out[8][e] = e + 2 < experts ? -infinity : -3.0 - static_cast<double>(e % 2);  // fewer numbers than K
    out[9][e] = e == experts - 1 ? infinity : (e == 1 ? nan : -infinity);
  }
  return out;
}

}  // namespace moecl::test
