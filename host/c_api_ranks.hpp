#pragma once
// Groups of ranks behind the C interface.
#include <moecl/communicator.hpp>
#include <moecl/rank_group.h>

#include <vector>

#include "host/c_api.hpp"

namespace moecl::c_api {

/// A group and references to its streams, so that handles may be destroyed in any order.
struct GroupOfStreams {
  std::vector<moecl_stream> streams;
  RankGroup group;
};

}  // namespace moecl::c_api

struct moecl_rank_group {
  std::shared_ptr<moecl::c_api::GroupOfStreams> ranks;
};

struct moecl_communicator {
  std::shared_ptr<moecl::c_api::GroupOfStreams> ranks;
  moecl::Communicator communicator;
};
