#include <moecl/window_slots.hpp>

#include "host/npu/parcel.hpp"

namespace moecl::npu {
namespace {

/// `count` groups of neighbouring ranks. Each has `owners_each` owners; those of the first group start at first_owner.
struct Groups {
  std::int32_t first_owner, owners_each, count;
};

/// Sorts the rows of `slabs` slabs by the groups that they reach. A row stands once in each group that it reaches.
SortedIds by_group(Steps& steps, const TensorView& owners, const Groups& groups, std::int32_t slabs) {
  const TensorView ids = steps.scratch(DType::i32, {owners.shape[0], groups.count});
  steps.run(window_slots::ReachedGroups{owners, groups.first_owner, groups.owners_each, slabs, ids});
  return sort_ids(steps, ids, groups.count * slabs);
}

/// Packs rows into slabs in the order of a sort by_group. @param places  of all slabs
Parcel packed(Steps& steps, const Parcel& from, const SortedIds& sorted, std::int32_t groups, std::int64_t places) {
  const auto slabs = static_cast<std::int32_t>(sorted.row_ends.shape[0]);
  const TensorView index = steps.scratch(DType::i32, {places});
  steps.run(window_slots::Outgoing{sorted.row_ends, sorted.sorted_slots, slabs, index});
  Parcel to;
  for (const auto part : Parcel::parts)
    if ((from.*part).present()) {
      to.*part = room_for(steps, places, from.*part, (from.*part).dtype);
      move_all(steps, from.*part, index, groups, {}, to.*part);
    }
  if (!to.slots.present()) to.slots = index;
  return to;
}

Parcel exchanged(Steps& steps, Communicator* ranks, const SlabExchange& how, const Parcel& send) {
  const Parcel came = send.window(steps);
  exchange_slabs(ranks, how, send.to(came));
  return came;
}

}  // namespace

Parcel server_by_server(Steps& steps, const Distribution& d, const Parcel& own, const TensorView& by_owner,
                        Communicator* ranks, TensorView& all_ends) {
  Servers servers(d, ranks);
  const std::int32_t each = servers.each, count = servers.count;
  const auto experts = static_cast<std::int32_t>(d.local_experts());
  const std::int64_t most = d.most_tokens * (d.columns() / own.owners.shape[1]);
  const SortedIds by_server = by_group(steps, own.owners, {0, each * experts, count}, 1),
                  by_rank = by_group(steps, own.owners, {0, experts, d.ranks}, 1);
  const std::vector<TensorView> ends =
      gather_lists(steps, ranks, d.ranks, {by_owner, by_server.row_ends, by_rank.row_ends});
  all_ends = ends[0];

  SlabExchange to_servers{most, ends[1], {}};
  for (std::int32_t from = 0; from < count; ++from)
    to_servers.slabs.push_back({from, servers.mine, from, from * each + servers.index, servers.mine, servers.mine + 1});
  const Parcel relayed =
      exchanged(steps, servers.peers(), to_servers, packed(steps, own, by_server, count, count * most));

  SlabExchange in_server{most, ends[2], {}};
  for (std::int32_t relay = 0; relay < each; ++relay)
    for (std::int32_t from = 0; from < count; ++from) {
      const std::int32_t source = from * each + relay;
      in_server.slabs.push_back({relay, servers.index * count + from, source, source, d.rank, d.rank + 1});
    }
  const SortedIds forwards = by_group(steps, relayed.owners, {servers.mine * each * experts, experts, each}, count);
  return exchanged(steps, servers.in_server(), in_server, packed(steps, relayed, forwards, each, d.ranks * most));
}

}  // namespace moecl::npu
