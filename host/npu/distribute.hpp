#pragma once
// What dispatch and combine share: which rank owns what, how large the windows are, and how the ranks agree on a call.
#include <moecl/communicator.hpp>
#include <moecl/npu_distribute.hpp>

#include <functional>
#include <optional>
#include <vector>

#include "host/npu/call.hpp"

namespace moecl::npu {

/// Where experts and rows are, from the parameters alone. npu_distribute.hpp defines the letters.
struct Distribution {
  std::int32_t ranks = 0, rank = 0;
  std::int32_t experts = 0, zero_experts = 0, copy_experts = 0, const_experts = 0;
  std::int32_t shared_experts = 0, shared_ranks = 0;  ///< both 0 without shared ranks
  std::int64_t tokens = 0, most_tokens = 0;           ///< BS, Bmax
  std::int64_t top_k = 0, hidden = 0;
  DType dtype = DType::f32;
  std::int64_t global_bs = 0;
  bool hierarchy = false;
  std::int32_t ranks_per_server = 0;

  std::int32_t owners() const { return shared_ranks + experts; }  ///< a shared rank or an expert, in order of rank
  std::int32_t columns() const { return static_cast<std::int32_t>(top_k) + shared_experts; }  ///< slots of a token
  std::int64_t experts_each() const { return experts / (ranks - shared_ranks); }              ///< nl of unshared ranks
  /// The owners of rank r are [first_owner(r), first_owner(r + 1)).
  std::int64_t first_owner(std::int32_t r) const {
    return r < shared_ranks ? r : shared_ranks + (r - shared_ranks) * experts_each();
  }
  std::int64_t local_experts() const { return rank < shared_ranks ? 1 : experts_each(); }
  /// The maximum number of rows from one rank to another.
  std::int64_t capacity() const { return most_tokens * std::min(experts_each(), top_k); }
  std::int64_t window_rows() const { return ranks * capacity(); }
  std::int64_t expand_rows() const;  ///< A

  /// Errors: invalid_argument, unsupported
  void check() const;
  std::vector<Agreed> agreed() const;
};

/// The rows that travel: tokens in dispatch, expert rows in combine. Shape: [?, H]
inline const TensorView& rows_of(const MoeDistributeDispatchRows& args) { return args.x; }
inline const TensorView& rows_of(const MoeDistributeCombineRows& args) { return args.expand_x; }

/// Whether rows of this type are codes, which dispatch moves unchanged.
inline bool is_wire_code(DType dtype) { return dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i32; }

/// Checks the parameters that mean the same in all four operators.
template <class Args>
Distribution distribution_of(const Args& args) {
  const TensorView& rows = rows_of(args);
  const bool takes_codes = std::is_base_of_v<MoeDistributeDispatchRows, Args>;
  require(rows.rank == 2 && (is_activation_dtype(rows.dtype) || (takes_codes && is_wire_code(rows.dtype))),
          "expected rows of f32, f16 or bf16 [?, H], got {}", rows);
  require(args.expert_ids.rank == 2 && args.expert_ids.dtype == DType::i32 && args.expert_ids.shape[1] >= 1,
          "expert_ids: expected i32[BS, K], got {}", args.expert_ids);
  static constexpr std::int64_t most = std::int64_t{1} << 20;  // limit of every count: keeps products in range
  const auto number = [](const char* name, std::int64_t value) {
    require(value >= 0 && value <= most, "{}: {} is not in [0, {}]", name, value, most);
    return static_cast<std::int32_t>(value);
  };
  Distribution d;
  d.ranks = number("ep_world_size", args.ep_world_size);
  d.rank = number("ep_rank_id", args.ep_rank_id);
  d.experts = number("moe_expert_num", args.moe_expert_num);
  d.shared_ranks = number("shared_expert_rank_num", args.shared_expert_rank_num);
  d.shared_experts = number("shared_expert_num", args.shared_expert_num);
  d.global_bs = number("global_bs", args.global_bs);
  require(d.shared_ranks != 0 || d.shared_experts <= 1, "shared_expert_num: {} of them need ranks", d.shared_experts);
  if (d.shared_ranks == 0) d.shared_experts = 0;
  if constexpr (std::is_base_of_v<MoeDistributeV2, Args>) {
    d.zero_experts = number("zero_expert_num", args.zero_expert_num);
    d.copy_experts = number("copy_expert_num", args.copy_expert_num);
    d.const_experts = number("const_expert_num", args.const_expert_num);
    d.hierarchy = args.comm_alg == CommAlg::hierarchy;
    d.ranks_per_server = args.ranks_per_server == 0 ? d.ranks : number("ranks_per_server", args.ranks_per_server);
    if (args.elastic_info.present()) fail(ErrorCode::unsupported, "elastic_info: groups do not shrink");
    if (args.performance_info.present()) fail(ErrorCode::unsupported, "performance_info: a trace tells");
  }
  if (args.tp_world_size > 1) fail(ErrorCode::unsupported, "tp_world_size: {}, only 0 and 1", args.tp_world_size);
  require(args.tp_world_size >= 0 && args.tp_rank_id == 0, "tp_rank_id: {} of {}", args.tp_rank_id, args.tp_world_size);
  require(args.expert_shard_type == 0, "expert_shard_type: {}, only 0 exists", args.expert_shard_type);
  d.tokens = args.expert_ids.shape[0];
  d.top_k = args.expert_ids.shape[1];
  d.hidden = rows.shape[1];
  d.dtype = rows.dtype;
  d.check();
  d.most_tokens = d.global_bs == 0 ? d.tokens : d.global_bs / d.ranks;
  require(d.tokens <= d.most_tokens, "global_bs: {} allows {} ranks {} tokens each, this one has {}", d.global_bs,
          d.ranks, d.most_tokens, d.tokens);
  return d;
}

/// The outputs of expert_sort.
struct SortedIds {
  TensorView row_ends, sorted_slots, slot_rows;
};
/// @param ids  Shape: [?, ?] i32; slots with ids outside [first, first + experts) are left out
SortedIds sort_ids(Steps& steps, const TensorView& ids, std::int32_t experts, std::int32_t first = 0);

/// A slab that this rank gets from `peer`: slab `from` of what the peer sends becomes slab `to` of what this rank
/// receives. Its rows are counted by entries [begin, end) of list `list` in the table of cumulative ends.
struct Slab {
  std::int32_t peer, from, to;
  std::int64_t list, begin, end;
};
/// An exchange of slabs with room for `capacity` rows. Only rows that exist travel; a table on the device counts them.
struct SlabExchange {
  std::int64_t capacity;
  TensorView table;  ///< cumulative ends. Shape: [lists, ends] i32
  std::vector<Slab> slabs;
  bool one_more = false;  ///< each slab also brings the row after its last one, if it has room
};
/// A tensor of slabs to send, and its counterpart to receive. Shape: [slabs * capacity] or [slabs * capacity, ?]
struct Piece {
  TensorView send, recv;
};
/// Exchanges all pieces at once. Nothing moves if `ranks` is null.
void exchange_slabs(Communicator* ranks, const SlabExchange& how, const std::vector<Piece>& pieces);
/// A tensor in scratch with the shape of `send`, to receive into.
TensorView window_like(Steps& steps, const TensorView& send);
/// All-gathers several lists in one exchange. @param lists  Shape: [?] i32. @return  of each list, Shape: [ranks, ?]
std::vector<TensorView> gather_lists(Steps& steps, Communicator* ranks, std::int32_t size,
                                     const std::vector<TensorView>& lists);

/// The servers of comm_alg hierarchy: rank = server * each + index.
struct Servers {
  std::int32_t each, count, mine, index;
  std::optional<Communicator> near, alike;  ///< ranks of this server; ranks with this index. Empty while checking

  Servers(const Distribution& d, Communicator* ranks);
  Communicator* in_server() { return near ? &*near : nullptr; }
  Communicator* peers() { return alike ? &*alike : nullptr; }
};

/// A vector as a matrix of one column.
inline TensorView as_column(const TensorView& view) { return reshaped(view, {view.elements(), 1}); }

/// Tells the other ranks that this rank accepts its arguments, and learns whether they accept theirs.
/// Errors: invalid_argument  a rank refuses, or ranks disagree; the group stays usable
void agree(Communicator& ranks, const char* name, const std::vector<Agreed>& mine);

/// Runs `check` on this rank's arguments. If it throws an Error, this rank refuses: the others hear of it in `agree`,
/// and the group stays usable. Any other exception ends the group.
void check_together(Communicator& ranks, const char* name, const std::function<void()>& check);

/// The parameters; with hierarchy and ranks_per_server 0, ranks_per_server is set to the group's ranks per node.
/// Errors: unsupported  its servers do not have equal runs of ranks
template <class Args>
Args with_servers(Args args, const Communicator& ranks) {
  if constexpr (std::is_base_of_v<MoeDistributeV2, Args>)
    if (args.comm_alg == CommAlg::hierarchy && args.ranks_per_server == 0)
      args.ranks_per_server = ranks.ranks_per_node();
  return args;
}

/// Workspace of a call. If the group determines the server size, the maximum over all sizes.
template <class Args>
std::uint64_t measure_for_servers(const Args& args, const Device& device, Composition<Args> compose) {
  std::uint64_t most = measure(args, device, compose);
  if constexpr (std::is_base_of_v<MoeDistributeV2, Args>)
    if (args.comm_alg == CommAlg::hierarchy && args.ranks_per_server == 0)
      for (Args each = args; each.ranks_per_server++ < args.ep_world_size;)
        if (args.ep_world_size % each.ranks_per_server == 0) most = std::max(most, measure(each, device, compose));
  return most;
}

/// As `call`, for a call of all ranks. `compose` also takes the communicator, which is null while checking.
/// @param more  values that must be the same on all ranks, in addition to those of the distribution
template <class Args, class Compose>
void call_together(Communicator& ranks, const Args& given, const Call& how, Compose compose,
                   const std::vector<Agreed>& more) {
  const char* const name = Describe<Args>::name;
  named(name, [&] {
    std::vector<Agreed> mine;
    Args args = given;
    check_together(ranks, name, [&] {
      args = with_servers(given, ranks);
      const Distribution distribution = distribution_of(args);
      require(distribution.ranks == ranks.size() && distribution.rank == ranks.rank(),
              "ep_world_size, ep_rank_id: rank {} of {}, but the communicator is rank {} of {}", distribution.rank,
              distribution.ranks, ranks.rank(), ranks.size());
      check_call(*ranks.stream().device, args, how, [&](Steps& steps, const Args& a) { compose(steps, a, nullptr); });
      mine = distribution.agreed();
      mine.insert(mine.end(), more.begin(), more.end());
      mine.emplace_back("strict validation with a fault word",
                        how.validation == Validation::strict && how.fault.present());
    });
    agree(ranks, name, mine);
    ranks.together([&] {
      enqueue_call(ranks.stream(), args, how, [&](Steps& steps, const Args& a) { compose(steps, a, &ranks); });
    });
  });
}

}  // namespace moecl::npu
