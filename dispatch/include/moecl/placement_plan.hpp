#pragma once
#include <moecl/expert_map.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// What the placement of a layer's experts depends on; every rank must give the same.
struct PlaceExperts {
  std::int32_t experts = 1;        ///< L: of the model, the logical ones
  std::int32_t ranks = 1;          ///< R: among which experts are divided
  std::int32_t expert_groups = 1;  ///< of the router
  std::int32_t redundant = 0;      ///< second copies; with them R divides the sum
  ExpertPlacement wanted = ExpertPlacement::linear;
};

/// Where the L logical experts of a model stand: at P physical places, which count linearly over the ranks.
///
/// Routers choose logical experts; physical_experts turns them into places, and from there on nobody asks which expert
/// stands where.
struct PlacementPlan {
  ExpertPlacement placement = ExpertPlacement::linear;
  std::string reason;                     ///< also why it is not the one that was wanted
  std::int32_t most_replicas = 1;         ///< places of the expert that has most
  std::vector<std::int32_t> logical_of;   ///< [P] ("phys2log"); -1: a free place
  std::vector<std::int32_t> physical_of;  ///< [L, most_replicas], ascending, padded with -1 ("log2phys")
  std::vector<std::int32_t> replicas;     ///< [L] places of each expert; 0: it has gone
  bool may_lack = false;                  ///< experts may have gone, as after the loss of a rank

  std::int32_t logical() const { return static_cast<std::int32_t>(replicas.size()); }
  std::int32_t physical() const { return static_cast<std::int32_t>(logical_of.size()); }
  /// Every expert stands at the place of its own number.
  bool is_identity() const;
  /// Experts without a place.
  std::vector<std::int32_t> gone() const;
  /// Of a plan that was made by hand.
  /// Errors: invalid_argument  a place holds no expert, or an expert has no place, unless that may be; or physical_of,
  ///         replicas and most_replicas do not say where logical_of puts the experts
  void check() const;
};

/// Linear: expert e at place e, then redundant copies of experts 0, 1, 2, ... Round robin: expert e on rank e % R; that
/// is done only over several ranks, without redundant experts and for routers with expert groups, which it spreads over
/// the ranks. Else the plan is linear and says why.
///
/// vLLM also refuses round robin to those of its kernels that count experts linearly; here all strategies see places.
/// Errors: invalid_argument  a count is out of range, or redundant experts do not make equal shares
/// Source: vLLM's determine_expert_placement_strategy and EPLB's initial placement
PlacementPlan place_experts(const PlaceExperts& problem);
/// The plan of places that somebody else chose. @param logical_of  as PlacementPlan has it
/// Errors: invalid_argument  a place holds no expert of `experts`, or an expert has no place
PlacementPlan place_as_given(std::vector<std::int32_t> logical_of, std::int32_t experts);
/// The same of a table in which places may be free (-1) and experts may have gone.
PlacementPlan place_what_is_left(std::vector<std::int32_t> logical_of, std::int32_t experts);
/// Experts of each rank by what its device does: in proportion to the rates, rounded so that they add up.
/// @param rates  of each rank, in one unit. Shape: [R]. Errors: invalid_argument  one is negative, or all are 0
std::vector<std::int32_t> shares_by_rates(std::int32_t experts, const std::vector<double>& rates);
/// Consecutive experts on each rank, so many as its share, for ranks on unlike devices. All have as many places as the
/// rank that has most; those that a rank has beyond its share are free, and a layer takes no memory for them.
/// @param shares  of each rank. Shape: [R]. Errors: invalid_argument  one is negative, or all are 0
PlacementPlan place_in_shares(const std::vector<std::int32_t>& shares);
/// What is left where some of the R ranks are lost: the places of the others, in their order.
/// Errors: invalid_argument  R does not divide the places, or a lost rank is none
PlacementPlan without_ranks(const PlacementPlan& plan, std::int32_t ranks, const std::vector<std::int32_t>& lost);

/// Which of an expert's places a token of a rank takes.
enum class ReplicaChoice : std::uint8_t {
  token_hash,  ///< by the token's number: any. Source: vLLM
  per_rank,    ///< the rank's own, else one by the rank's number, for all its tokens. Source: log2phy of vllm-ascend
  by_need      ///< by the token's number, in such shares that the fullest rank has the least load
};
/// The places among which a rank's tokens choose by their numbers.
struct ReplicaTable {
  std::int32_t choices = 1;          ///< of the expert that has most
  std::vector<std::int32_t> places;  ///< [L, choices], padded with -1; a place may be there several times
  std::vector<std::int32_t> counts;  ///< [L] choices of each expert
};
/// @param loads  of by_need: of each logical expert. Shape: [L]
/// Errors: invalid_argument  loads of another number of experts, or negative; places that `ranks` do not share equally
ReplicaTable replica_table(const PlacementPlan& plan, ReplicaChoice choice, std::int32_t rank, std::int32_t ranks,
                           const std::vector<double>& loads = {});

/// Experts that go from one rank to another.
struct ExpertFlow {
  std::int32_t from = 0, to = 0;      ///< ranks
  std::vector<std::int32_t> experts;  ///< rising
};
/// What ranks must send each other so that they hold the experts of the new table: in batches, in which a rank has one
/// peer at most. The ranks that hold an expert share those that want it.
/// @param from_table, to_table  [P] expert at each place, -1: none; rank r has P / ranks of them
/// Errors: invalid_argument  tables of different lengths, or that ranks do not share equally; an expert that nobody has
/// Source: vLLM, schedule_migration_batches
std::vector<std::vector<ExpertFlow>> schedule_moves(const std::vector<std::int32_t>& from_table,
                                                    const std::vector<std::int32_t>& to_table, std::int32_t ranks);
/// Errors: invalid_argument  no placement of that name
ExpertPlacement placement_from_name(std::string_view text);

}  // namespace moecl
