#include <moecl/parallel_config.hpp>

#include "runtime/check.hpp"

namespace moecl {
namespace {

void expect_inside(const char* what, GroupPosition position) {
  require(position.size >= 1 && position.rank >= 0 && position.rank < position.size,
          "{} rank {} is not in a group of {}", what, position.rank, position.size);
}

}  // namespace

ParallelConfig ParallelConfig::make(GroupPosition tp, GroupPosition dp, bool expert_parallel) {
  expect_inside("tp", tp);
  expect_inside("dp", dp);
  const GroupPosition flat{dp.size * tp.size, dp.rank * tp.size + tp.rank};
  ParallelConfig config;
  config.dp = dp;
  config.use_ep = expert_parallel && flat.size > 1;
  (config.use_ep ? config.ep : config.tp) = flat;
  return config;
}

}  // namespace moecl
