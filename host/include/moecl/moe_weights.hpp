#pragma once
#include <moecl/dtype.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/router_spec.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// The sizes and rules of one MoE layer, without its weights.
struct MoeShape {
  std::int64_t hidden = 0;        ///< H
  std::int64_t intermediate = 0;  ///< I of one routed expert
  std::int32_t experts = 0;       ///< E
  RouterSpec router;
  Activation activation;
  std::int64_t shared_intermediate = 0;  ///< of the shared experts together; 0: the family has none
  bool shared_gate = false;              ///< the shared part is multiplied by sigmoid(x . gate)
  bool selection_bias = false;
};

/// A matrix in host memory. Owns nothing; must outlive the call it is passed to.
struct HostMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 1;  ///< in elements

  HostMatrix() = default;
  HostMatrix(const void* values, DType type, std::int64_t n_rows, std::int64_t n_columns)
      : data(values), dtype(type), rows(n_rows), columns(n_columns), row_stride(n_columns) {}
  bool present() const noexcept { return data != nullptr; }
};

/// One gated expert: down(activation(gate x) * up x).
struct ExpertMatrices {
  HostMatrix gate;  ///< Shape: [I, H] ("w1")
  HostMatrix up;    ///< Shape: [I, H] ("w3")
  HostMatrix down;  ///< Shape: [H, I] ("w2")
};

/// The weights of one MoE layer in host memory: f32, f16 or bf16, each matrix its own type.
struct MoeWeights {
  HostMatrix router;          ///< Shape: [E, H]
  HostMatrix selection_bias;  ///< optional. Shape: [1, E]
  std::vector<ExpertMatrices> experts;
  ExpertMatrices shared;   ///< absent matrices when the shape has no shared experts
  HostMatrix shared_gate;  ///< optional. Shape: [1, H]
};

}  // namespace moecl
