#pragma once
#include <moecl/code_layout.hpp>
#include <moecl/dtype.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/host_bytes.hpp>
#include <moecl/quant_scheme.hpp>
#include <moecl/router_spec.hpp>

#include <cstdint>
#include <string>
#include <utility>
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
  bool router_bias = false;
  bool expert_bias = false;  ///< of the routed experts' three products
  bool shared_bias = false;  ///< of the shared experts'
  /// L: width of the routed experts' input and output, if it is not the router's ("latent" experts). They then have an
  /// input of their own. 0: H
  std::int64_t expert_hidden = 0;
  /// Experts without products. Their ids follow the routed ones in this order. They give, in turn: 0; their input x;
  /// alpha_1 * x + alpha_2 * v. Source: LongCat-Flash; special experts of npu_moe_distribute_combine_v2
  std::int32_t zero_experts = 0, copy_experts = 0, const_experts = 0;
  /// V: token ids of a table that gives the experts of each; the router only gives their weights. 0: no table.
  /// Source: hash routing of DeepSeek-V4's first layers, in vLLM
  std::int64_t vocabulary = 0;

  std::int64_t expert_width() const noexcept { return expert_hidden == 0 ? hidden : expert_hidden; }  ///< L
  /// The routed experts of the checkpoint, without the shared ones that fuse_shared_experts adds.
  std::int32_t routed_experts() const noexcept { return experts - router.fused_shared_experts; }
  std::int32_t special_experts() const noexcept { return zero_experts + copy_experts + const_experts; }
  std::int32_t ids() const noexcept { return experts + special_experts(); }  ///< all experts have the ids [0, ids())
  /// C: the experts that a router chooses among.
  std::int32_t choices() const noexcept { return ids() - router.fused_shared_experts; }
};

/// A matrix in host memory or in a file. Owns no bytes; they must outlive the call it is passed to.
struct HostMatrix {
  HostBytes data;
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 1;  ///< in elements

  HostMatrix() = default;
  HostMatrix(HostBytes values, DType type, std::int64_t n_rows, std::int64_t n_columns)
      : data(std::move(values)), dtype(type), rows(n_rows), columns(n_columns), row_stride(n_columns) {}
  bool present() const noexcept { return data.present(); }
  /// From the first element to the end of the last one.
  std::uint64_t span_bytes() const noexcept {
    const std::int64_t span = (rows - 1) * row_stride + (columns - 1) * column_stride + 1;
    return present() ? static_cast<std::uint64_t>(span) * size_bytes(dtype) : 0;
  }
  /// The same matrix with its bytes in memory, see HostBytes::in_memory.
  HostMatrix in_memory() const {
    HostMatrix here = *this;
    here.data = data.in_memory(span_bytes());
    return here;
  }
};

/// Codes of a quantized matrix in host memory or in a file, as a checkpoint stores them. Owns no bytes.
struct CodeMatrix : CodeLayout {
  HostBytes data;

  bool present() const noexcept { return data.present(); }
};

/// A weight matrix [N, K], plain or quantized. Owns no bytes but its group index.
///
/// Quantized: (code(n, k) - zero(n, k)) * scale(n, k) * global_scale. The scale and the zero point are those of group
/// (n / group.rows, g), where g is group_index[k], or k / group.columns if group_index is empty.
struct WeightMatrix {
  HostMatrix plain;  ///< absent when quantized
  CodeMatrix codes;
  HostMatrix scale;  ///< Shape: [groups of n, groups of k] f32, f16, bf16, f8_e4m3, or u8: e8m0
  ScaleGroup group;
  CodeMatrix zero;                        ///< optional, of integer codes. Shape: as scale
  std::int32_t zero_add = 0;              ///< added to the values in `zero`. Source: GPTQ stores zero - 1
  std::vector<std::int32_t> group_index;  ///< optional. Shape: [K]. Source: GPTQ's act-order, g_idx
  float global_scale = 1;

  WeightMatrix() = default;
  WeightMatrix(const HostMatrix& matrix) : plain(matrix) {}  // NOLINT(google-explicit-constructor): a matrix is one
  bool quantized() const noexcept { return codes.present(); }
  bool present() const noexcept { return plain.present() || quantized(); }
  std::int64_t rows() const noexcept { return quantized() ? codes.rows : plain.rows; }
  std::int64_t columns() const noexcept { return quantized() ? codes.columns : plain.columns; }
};

/// One expert: down(activation(gate x) * up x), or without a gate down(activation(up x)).
struct ExpertMatrices {
  WeightMatrix gate;  ///< Shape: [I, H] ("w1"); absent where the shape's activation is not gated
  WeightMatrix up;    ///< Shape: [I, H] ("w3")
  WeightMatrix down;  ///< Shape: [H, I] ("w2")
  /// Optional, added to the products. Shapes: [1, I] (as gate), [1, I], [1, H] f32, f16 or bf16
  HostMatrix gate_bias, up_bias, down_bias;
  /// Static scales of the inputs of this expert's products; 0: inputs bring their own scales or stay plain.
  float gate_up_input_scale = 0, down_input_scale = 0;
};

/// The weights of one MoE layer on the host. Plain matrices are f32, f16 or bf16, each its own type.
struct MoeWeights {
  HostMatrix
      router;  ///< optional: without it passes bring logits or ids, or a table's weights are equal. Shape: [C, H]
  HostMatrix router_bias;     ///< optional. Shape: [1, C]
  HostMatrix selection_bias;  ///< optional. Shape: [1, C]
  HostMatrix expert_table;    ///< experts by token id. Shape: [V, K] i32 or i64. Range: [0, C)
  /// Of constant experts. Shapes: [const_experts, L]
  HostMatrix const_alpha_1, const_alpha_2, const_v;
  std::vector<ExpertMatrices> experts;
  ExpertMatrices shared;   ///< absent matrices when the shape has no shared experts
  HostMatrix shared_gate;  ///< optional. Shape: [1, H]
};

}  // namespace moecl
