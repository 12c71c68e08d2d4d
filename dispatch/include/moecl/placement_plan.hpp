#pragma once
#include <moecl/expert_map.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// Input of place_experts. Every rank must give the same.
struct PlaceExperts {
  std::int32_t experts = 1;        ///< L: logical experts of the model
  std::int32_t ranks = 1;          ///< R: ranks that divide the experts
  std::int32_t expert_groups = 1;  ///< expert groups of the router
  std::int32_t redundant = 0;      ///< second copies; if any, R must divide experts + redundant
  ExpertPlacement wanted = ExpertPlacement::linear;
};

/// Which of P physical places each of a model's L logical experts occupies. Places are numbered linearly over the
/// ranks.
///
/// Routers choose logical experts. physical_experts turns them into places; no later step needs to know which expert is
/// at a place.
struct PlacementPlan {
  ExpertPlacement placement = ExpertPlacement::linear;
  std::string reason;                     ///< why this placement, or why not the wanted one
  std::int32_t most_replicas = 1;         ///< the most places that one expert has
  std::vector<std::int32_t> logical_of;   ///< [P] expert at each place ("phys2log"); -1: free
  std::vector<std::int32_t> physical_of;  ///< [L, most_replicas] places, rising, then -1 ("log2phys")
  std::vector<std::int32_t> replicas;     ///< [L] number of places of each expert; 0: it is gone
  bool may_lack = false;                  ///< experts may have no place, as after the loss of a rank

  std::int32_t logical() const { return static_cast<std::int32_t>(replicas.size()); }
  std::int32_t physical() const { return static_cast<std::int32_t>(logical_of.size()); }
  /// Whether every expert stands at the place of its own number.
  bool is_identity() const;
  /// Experts without a place.
  std::vector<std::int32_t> gone() const;
  /// Checks a plan that was made by hand.
  /// Errors: invalid_argument  a place holds no expert, or an expert has no place, unless may_lack is set; or
  ///         physical_of, replicas and most_replicas contradict logical_of
  void check() const;
};

/// Linear: expert e at place e, then redundant copies of experts 0, 1, 2, ... Round robin: expert e on rank e % R,
/// which spreads the router's expert groups over the ranks. Round robin needs several ranks, expert groups and no
/// redundant experts. Otherwise the plan is linear, and its reason says why.
///
/// vLLM also refuses round robin for kernels that count experts linearly. Here that is no limit: all strategies see
/// places.
/// Errors: invalid_argument  a count is out of range, or redundant experts do not make equal shares
/// Source: vLLM's determine_expert_placement_strategy and EPLB's initial placement
PlacementPlan place_experts(const PlaceExperts& problem);
/// A plan from a table that the caller chose. @param logical_of  as in PlacementPlan
/// Errors: invalid_argument  a place holds no expert of `experts`, or an expert has no place
PlacementPlan place_as_given(std::vector<std::int32_t> logical_of, std::int32_t experts);
/// The same for a table that may have free places (-1) and experts without a place.
PlacementPlan place_what_is_left(std::vector<std::int32_t> logical_of, std::int32_t experts);
/// The number of experts of each rank, in proportion to the speed of its device. Rounded so that the sum is `experts`.
/// @param rates  of each rank, in one unit. Shape: [R]. Errors: invalid_argument  one is negative, or all are 0
std::vector<std::int32_t> shares_by_rates(std::int32_t experts, const std::vector<double>& rates);
/// Consecutive experts on each rank, as many as its share, for ranks on unlike devices. Every rank has as many places
/// as the rank with the largest share. Places beyond a rank's share are free, and a layer takes no memory for them.
/// @param shares  of each rank. Shape: [R]. Errors: invalid_argument  one is negative, or all are 0
PlacementPlan place_in_shares(const std::vector<std::int32_t>& shares);
/// The plan that remains when some of the R ranks are lost: the places of the other ranks, in their order.
/// Errors: invalid_argument  R does not divide the places, or a lost rank is not in [0, R)
PlacementPlan without_ranks(const PlacementPlan& plan, std::int32_t ranks, const std::vector<std::int32_t>& lost);

/// Which of an expert's places a token uses.
enum class ReplicaChoice : std::uint8_t {
  token_hash,  ///< any place, by a hash of the token's number. Source: vLLM
  per_rank,    ///< one for all tokens of a rank: its own, else by its number. Source: log2phy of vllm-ascend
  by_need      ///< by the token's number, in shares that minimize the load of the fullest rank
};
/// For each expert the places that the tokens of a rank use. The token's number selects one of the expert's entries.
struct ReplicaTable {
  std::int32_t choices = 1;          ///< the most entries that one expert has
  std::vector<std::int32_t> places;  ///< [L, choices], padded with -1; a place may occur several times
  std::vector<std::int32_t> counts;  ///< [L] number of entries of each expert
};
/// @param loads  for by_need: load of each logical expert. Shape: [L]
/// Errors: invalid_argument  loads of another number of experts, or negative; `ranks` does not divide the places
ReplicaTable replica_table(const PlacementPlan& plan, ReplicaChoice choice, std::int32_t rank, std::int32_t ranks,
                           const std::vector<double>& loads = {});

/// Experts that go from one rank to another.
struct ExpertFlow {
  std::int32_t from = 0, to = 0;      ///< ranks
  std::vector<std::int32_t> experts;  ///< rising
};
/// The transfers after which ranks hold the experts of the new table. They come in batches; in one batch a rank has at
/// most one peer. All ranks that hold an expert divide the sends of that expert among themselves.
/// @param from_table, to_table  [P] expert at each place, -1: none; rank r has P / ranks of them
/// Errors: invalid_argument  tables of different lengths, or that ranks do not share equally; an expert that nobody has
/// Source: vLLM, schedule_migration_batches
std::vector<std::vector<ExpertFlow>> schedule_moves(const std::vector<std::int32_t>& from_table,
                                                    const std::vector<std::int32_t>& to_table, std::int32_t ranks);
/// Errors: invalid_argument  no placement of that name
ExpertPlacement placement_from_name(std::string_view text);

}  // namespace moecl
