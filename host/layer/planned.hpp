#pragma once
// Plans of operators, made once and kept.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <memory>
#include <mutex>
#include <optional>

#include "kernels_cl/common/next_variant.hpp"

namespace moecl {

/// An operator's plan for arguments of one form. The first caller of `find` makes it. Threads: safe.
template <class Plan>
class Planned {
 public:
  /// Errors: as `make`; the next caller then tries again
  template <class Make>
  const Plan& find(const Make& make) {
    std::call_once(once_, [&] { plan_.emplace(make()); });
    return *plan_;
  }

 private:
  std::once_flag once_;
  std::optional<Plan> plan_;
};

/// Plans that name variants. They are made again after a variant has failed on the device. Threads: safe.
template <class Plans>
class PlannedVariants {
 public:
  /// Errors: as `make`
  template <class Make>
  std::shared_ptr<const Plans> find(const Device& device, const Make& make) {
    const std::size_t failed = device.failed_variants->size();
    const std::lock_guard lock(mutex_);
    if (plans_ == nullptr || failed_ != failed) {
      plans_ = std::make_shared<const Plans>(make());
      failed_ = failed;
    }
    return plans_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const Plans> plans_;
  std::size_t failed_ = 0;
};
/// The plan of one product.
using PlannedProduct = PlannedVariants<grouped_gemm::Plan>;

inline void enqueue_planned(StreamView stream, const grouped_gemm::Args& args, PlannedProduct& plan) {
  with_next_variant(stream, [&] {
    const Device& device = *stream.device;
    grouped_gemm::enqueue(stream, *plan.find(device, [&] { return grouped_gemm::plan(args, {}, device); }), args);
  });
}
inline void enqueue_planned(StreamView stream, const quantize_groups::Args& args,
                            Planned<quantize_groups::Plan>& plan) {
  quantize_groups::enqueue(stream, plan.find([&] { return quantize_groups::plan(args, {}, *stream.device); }), args);
}
inline void enqueue_planned(StreamView stream, const gated_activation::Args& args, Planned<LaunchPlan>& plan) {
  gated_activation::enqueue(stream, plan.find([&] { return gated_activation::plan(args, {}, *stream.device); }), args);
}
inline void enqueue_planned(StreamView stream, const gather_rows::Args& args, Planned<LaunchPlan>& plan) {
  gather_rows::enqueue(stream, plan.find([&] { return gather_rows::plan(args, {}, *stream.device); }), args);
}
inline void enqueue_planned(StreamView stream, const combine::Args& args, Planned<LaunchPlan>& plan,
                            Submit submit = {}) {
  combine::enqueue(stream, plan.find([&] { return combine::plan(args, {}, *stream.device); }), args, submit);
}

}  // namespace moecl
