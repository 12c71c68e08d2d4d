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
  std::vector<std::int32_t> logical_of;   ///< [P] ("phys2log")
  std::vector<std::int32_t> physical_of;  ///< [L, most_replicas], ascending, padded with -1 ("log2phys")
  std::vector<std::int32_t> replicas;     ///< [L] places of each expert

  std::int32_t logical() const { return static_cast<std::int32_t>(replicas.size()); }
  std::int32_t physical() const { return static_cast<std::int32_t>(logical_of.size()); }
  /// Every expert stands at the place of its own number.
  bool is_identity() const;
  /// Of a plan that was made by hand.
  /// Errors: invalid_argument  a place holds no expert, an expert has no place, or physical_of, replicas and
  ///         most_replicas do not say where logical_of puts the experts
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
/// Errors: invalid_argument  no placement of that name
ExpertPlacement placement_from_name(std::string_view text);

}  // namespace moecl
