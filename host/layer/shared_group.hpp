#pragma once
// The shared experts of a tp group's ranks: what each of them computes, and how all get the rest.
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
  /// @param own_tokens  the ranks of the tp group bring different tokens
  SharedGroup(const ExpertRank& rank, SharedSharding sharding, bool own_tokens)
      : tp_(rank.tp),
        first_rank_(rank.ep.rank() - rank.tp.rank()),
        sharding_(own_tokens && sharding == SharedSharding::tokens ? SharedSharding::replicated : sharding),
        own_tokens_(own_tokens) {}

  /// Scratch for what other ranks bring and compute, of so many tokens of this rank, and of the group.
  struct Layout {
    Layout() = default;
    Layout(WorkspaceLayout& workspace, const SharedGroup& group, std::int64_t tokens, std::int64_t group_tokens,
           std::int64_t hidden, DType dtype);
    TensorView x;                  ///< tokens of all ranks of the group; absent unless `brings_tokens`
    TensorView rows, gate_logits;  ///< absent where each rank has all of its own
    TensorView total;              ///< of routed and shared parts; absent unless the group adds parts of sums
  };
  /// Whether the ranks exchange what they have, which all of them do or none.
  bool meets() const { return tp_.size() > 1 && sharding_ != SharedSharding::replicated; }
  /// Each rank has a part of the intermediate size, so it needs the tokens of all.
  bool brings_tokens() const { return own_tokens_ && divides_intermediate(); }
  /// Each rank has parts of the sums of tokens that all have.
  bool adds_parts() const { return !own_tokens_ && divides_intermediate(); }
  /// Whose part this rank computes at most. @param of_ranks  tokens of each rank of `ep`
  std::int64_t tokens(const std::vector<std::int64_t>& of_ranks, std::int64_t own) const;

  /// The tokens whose part this rank computes; of results that are not reduced no two ranks compute the same.
  Share share(std::int64_t tokens, bool reduce_results = true) const;
  /// Where the group brings its tokens together: those of all.
  TensorView bring(const TensorView& x, const std::vector<std::int64_t>& of_ranks, const Layout& layout,
                   BufferView workspace) const;
  /// Of all tokens of this rank, from what it has of them: some tokens, or a part of the sum over the intermediate
  /// size.
  SharedExperts::Output gather(const SharedExperts::Output& mine, const std::vector<std::int64_t>& of_ranks,
                               const Layout& layout, BufferView workspace, StepMemory& memory) const;
  /// total = its sum over the group.
  void add_up(const TensorView& total, StepMemory& memory) const;

 private:
  bool divides_tokens() const { return tp_.size() > 1 && sharding_ == SharedSharding::tokens; }
  bool divides_intermediate() const { return tp_.size() > 1 && sharding_ == SharedSharding::intermediate; }
  /// Of each rank of the group, which bring different ones.
  std::span<const std::int64_t> counts(const std::vector<std::int64_t>& of_ranks) const;

  Communicator tp_;
  std::int32_t first_rank_;  ///< of the group, in `ep`
  SharedSharding sharding_;
  bool own_tokens_;
};

}  // namespace moecl
