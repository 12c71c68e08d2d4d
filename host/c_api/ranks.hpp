#pragma once
// Groups of ranks behind the C interface.
#include <moecl/communicator.hpp>
#include <moecl/rank_group.h>
#include <moecl/window.hpp>

#include <vector>

#include "host/c_api/c_api.hpp"

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

struct moecl_window {
  std::shared_ptr<moecl::c_api::GroupOfStreams> ranks;
  moecl::Communicator communicator;
  moecl::Window window;
};

namespace moecl::c_api {

template <class Body>
moecl_status collective(moecl_communicator* communicator, Body body) {
  if (communicator == nullptr) return failed(MOECL_INVALID_ARGUMENT, "communicator: the pointer is null");
  Communicator& ranks = communicator->communicator;
  return guarded([&] { ranks.together([&] { body(ranks, *ranks.stream().context); }); });
}

}  // namespace moecl::c_api
