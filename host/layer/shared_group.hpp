#pragma once
// The shared experts over the ranks of a tp group: which part each rank computes, and how all ranks get the rest.
#include <moecl/communicator.hpp>
#include <moecl/layer_options.hpp>
#include <moecl/strategy.hpp>

#include <span>

#include "dispatch/share.hpp"
#include "host/layer/shared_experts.hpp"

namespace moecl {

class StepMemory;

class SharedGroup {
 public:
  /// @param own_tokens  Each rank of the tp group brings tokens of its own.
  SharedGroup(const ExpertRank& rank, SharedSharding sharding, bool own_tokens)
      : tp_(rank.tp),
        first_rank_(rank.ep.rank() - rank.tp.rank()),
        sharding_(own_tokens && sharding == SharedSharding::tokens ? SharedSharding::replicated : sharding),
        own_tokens_(own_tokens) {}

  /// Scratch for what other ranks bring and compute. @param tokens  of this rank. @param group_tokens  of the group
  struct Layout {
    Layout() = default;
    Layout(WorkspaceLayout& workspace, const SharedGroup& group, std::int64_t tokens, std::int64_t group_tokens,
           std::int64_t hidden, DType dtype);
    TensorView x;                  ///< tokens of all ranks of the group; absent unless `brings_tokens`
    TensorView rows, gate_logits;  ///< absent if each rank computes all of its own
    TensorView total;              ///< of routed and shared parts; absent unless `adds_parts`
  };
  /// Whether the ranks exchange anything. All of them do, or none.
  bool meets() const { return tp_.size() > 1 && sharding_ != SharedSharding::replicated; }
  /// Whether each rank needs the tokens of all: it has a part of the intermediate size, and tokens of its own.
  bool brings_tokens() const { return own_tokens_ && divides_intermediate(); }
  /// Whether each rank has partial sums of the same tokens.
  bool adds_parts() const { return !own_tokens_ && divides_intermediate(); }
  /// The most tokens that this rank computes. @param of_ranks  tokens of each rank of `ep`. @param own  of this rank
  std::int64_t tokens(const std::vector<std::int64_t>& of_ranks, std::int64_t own) const;

  /// The tokens that this rank computes. If results are not reduced, no two ranks compute the same part.
  Share share(std::int64_t tokens, bool reduce_results = true) const;
  /// If the group `brings_tokens`: gathers the tokens of all its ranks.
  TensorView bring(const TensorView& x, const std::vector<std::int64_t>& of_ranks, const Layout& layout,
                   BufferView workspace) const;
  /// The output for all tokens of this rank. `mine` has some of the tokens, or partial sums over a part of the
  /// intermediate size.
  SharedExperts::Output gather(const SharedExperts::Output& mine, const std::vector<std::int64_t>& of_ranks,
                               const Layout& layout, BufferView workspace, StepMemory& memory) const;
  /// total = the sum of `total` over the ranks of the group.
  void add_up(const TensorView& total, StepMemory& memory) const;

 private:
  bool divides_tokens() const { return tp_.size() > 1 && sharding_ == SharedSharding::tokens; }
  bool divides_intermediate() const { return tp_.size() > 1 && sharding_ == SharedSharding::intermediate; }
  /// Tokens of each rank of the group, if they bring different ones.
  std::span<const std::int64_t> counts(const std::vector<std::int64_t>& of_ranks) const;

  Communicator tp_;
  std::int32_t first_rank_;  ///< of the group, as a rank of `ep`
  SharedSharding sharding_;
  bool own_tokens_;
};

}  // namespace moecl
