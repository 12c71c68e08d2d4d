#pragma once
// The shared experts of ranks that have the same tokens: what each of them computes, and how all get the rest.
#include <moecl/communicator.hpp>
#include <moecl/layer_options.hpp>
#include <moecl/strategy.hpp>

#include "dispatch/share.hpp"
#include "host/layer/shared_experts.hpp"

namespace moecl {

class SharedGroup {
 public:
  /// @param tp  the ranks with the same tokens
  SharedGroup(const Communicator& tp, SharedSharding sharding) : tp_(tp), sharding_(sharding) {}

  /// Scratch for what other ranks compute.
  struct Layout {
    Layout() = default;
    Layout(WorkspaceLayout& workspace, const SharedGroup& group, std::int64_t tokens, std::int64_t hidden);
    TensorView rows, gate_logits;  ///< absent where each rank has all of its own
  };
  /// Whether the ranks exchange what they have, which all of them do or none.
  bool meets() const { return tp_.size() > 1 && sharding_ != SharedSharding::replicated; }
  /// The tokens whose part this rank computes; of results that are not reduced no two ranks compute the same.
  Share share(std::int64_t tokens, bool reduce_results = true) const;
  /// Of all tokens, from what this rank has of them: some tokens, or a part of the sum over the intermediate size.
  SharedExperts::Output gather(const SharedExperts::Output& mine, const Layout& layout, BufferView workspace) const;

 private:
  bool divides_tokens() const { return tp_.size() > 1 && sharding_ == SharedSharding::tokens; }

  Communicator tp_;
  SharedSharding sharding_;
};

}  // namespace moecl
