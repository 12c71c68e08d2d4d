#pragma once
// The grouped product behind every matmul operator: packs weights of any storage for the call, then runs one grouped
// GEMM.
#include <moecl/group_list.hpp>
#include <moecl/npu_matmul.hpp>

#include "host/npu/describe.hpp"
#include "host/npu/steps.hpp"

namespace moecl::npu {

/// The type and shape of an operator's weights.
struct WeightShape {
  DType dtype = DType::f32;  ///< i32 holds int4
  std::int64_t experts = 0, k = 0, n = 0;
};
/// The shape of one [E, K, N] or [K, N], or of a list of E [K, N]. `k` is the K of x.
/// Errors: invalid_argument  the tensors disagree; unsupported  their type
WeightShape shape_of_weights(const TensorList& weight, std::int64_t k);

/// The operands, by the operators' names. Empty and absent ones are None.
struct Product {
  TensorView x;  ///< [M, K]
  TensorList weight;
  TensorList scale, offset, antiquant_scale, antiquant_offset, bias;
  bool assist = true;   ///< a float bias of int4 weights beside i8 x is the assist matrix
  TensorView x_scale;   ///< [M] f32
  TensorView row_ends;  ///< [E] i32; absent: one expert
  TensorView k_ends;    ///< groups along K, instead of row_ends
};
/// Errors: invalid_argument  the operands do not fit together
void run_product(Steps& steps, const Product& product, const TensorView& out);

/// Converts group_list to cumulative ends of `limit` rows (or of K), in scratch. Entries out of range are faults.
TensorView ends_of(Steps& steps, const TensorView& group_list, std::int64_t kind, std::int64_t groups,
                   std::int64_t limit);

/// A list of one tensor; empty if the tensor is absent.
TensorList list_of(const TensorView& view);

/// The minimum cost of a matmul operator: accesses each tensor once; a multiply-add counts as two operations.
template <class Args>
OperatorCost product_cost(Args args, std::int64_t rows, std::int64_t k, std::int64_t n) {
  infer(args);
  OperatorCost cost{
      0, 2 * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(n)};
  const auto add = [&](const char*, const TensorView& view) { cost.bytes += view.present() ? view.size_bytes() : 0; };
  for_each_input(args, add);
  for_each_output(args, add);
  return cost;
}

}  // namespace moecl::npu
