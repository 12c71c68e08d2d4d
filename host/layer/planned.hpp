#pragma once
// Decisions of operators that are made once and kept.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/quantize_groups.hpp>

#include <mutex>
#include <optional>

namespace moecl {

/// An operator's plan for arguments of one form, made by who asks first. Threads: safe.
template <class Plan>
class Planned {
 public:
  /// Errors: as `make`; who asks next makes it then
  template <class Make>
  const Plan& find(const Make& make) {
    std::call_once(once_, [&] { plan_.emplace(make()); });
    return *plan_;
  }

 private:
  std::once_flag once_;
  std::optional<Plan> plan_;
};

inline void enqueue_planned(StreamView stream, const quantize_groups::Args& args,
                            Planned<quantize_groups::Plan>& plan) {
  quantize_groups::enqueue(stream, plan.find([&] { return quantize_groups::plan(args, {}, stream.device->caps); }),
                           args);
}
inline void enqueue_planned(StreamView stream, const gated_activation::Args& args, Planned<LaunchPlan>& plan) {
  gated_activation::enqueue(stream, plan.find([&] { return gated_activation::plan(args, {}, stream.device->caps); }),
                            args);
}
inline void enqueue_planned(StreamView stream, const combine::Args& args, Planned<LaunchPlan>& plan,
                            Submit submit = {}) {
  combine::enqueue(stream, plan.find([&] { return combine::plan(args, {}, stream.device->caps); }), args, submit);
}

}  // namespace moecl
