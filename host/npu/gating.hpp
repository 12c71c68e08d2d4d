#pragma once
// What the gating operators share: [..., E] scores as rows and [..., k] results.
#include <moecl/gating_top_k.hpp>

#include "host/npu/steps.hpp"

namespace moecl::npu {

inline void expect_logits(const TensorView& x, std::int64_t k, std::int64_t most_experts) {
  require((x.rank == 2 || x.rank == 3) && is_activation_dtype(x.dtype),
          "x: expected f32, f16 or bf16 [N, E] or [A, B, E], got {}", x);
  const std::int64_t experts = x.shape[x.rank - 1];
  require(experts >= 1 && experts <= most_experts, "x: {} experts are outside [1, {}]", experts, most_experts);
  require(k >= 1 && k <= experts, "k: {} of {} experts cannot be chosen", k, experts);
}
inline void expect_flag(const char* name, std::int64_t value) {
  require(value == 0 || value == 1, "{}: {} is neither 0 nor 1", name, value);
}
inline std::vector<std::int64_t> chosen_shape(const TensorView& x, std::int64_t k) {
  std::vector<std::int64_t> shape = shape_of(x);
  shape.back() = k;
  return shape;
}
inline TensorView rows_if_present(const TensorView& view) { return view.present() ? as_rows(view) : TensorView(); }
/// `finished` as one flag for each row of x [..., E].
inline TensorView flags_of_rows(const TensorView& finished, const TensorView& x) {
  if (!finished.present()) return {};
  bool same = finished.rank == x.rank - 1;
  for (int d = 0; same && d < finished.rank; ++d) same = finished.shape[d] == x.shape[d];
  require(same, "finished: expected the shape of {} without its last dimension, got {}", x, finished);
  return reshaped(finished, {finished.elements()});
}

}  // namespace moecl::npu
