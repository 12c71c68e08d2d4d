#pragma once
// The grouped product that every matmul operator is: weights of any storage packed for this call, one grouped GEMM.
#include <moecl/group_list.hpp>
#include <moecl/npu_matmul.hpp>

#include "host/npu/describe.hpp"
#include "host/npu/steps.hpp"

namespace moecl::npu {

/// What the operators' weights are.
struct WeightShape {
  DType dtype = DType::f32;  ///< i32: int4
  std::int64_t experts = 0, k = 0, n = 0;
};
/// Of one [E, K, N] or [K, N], or a list of E [K, N], whose K is that of x.
/// Errors: invalid_argument  the tensors disagree; unsupported  their type
WeightShape shape_of_weights(const TensorList& weight, std::int64_t k);

/// Operands under the operators' names; empty and absent ones are None.
struct Product {
  TensorView x;  ///< [M, K]
  TensorList weight;
  TensorList scale, offset, antiquant_scale, antiquant_offset, bias;
  bool assist = true;   ///< a float bias of int4 weights beside i8 x is the assist matrix
  TensorView x_scale;   ///< [M] f32
  TensorView row_ends;  ///< [E] i32; absent: one expert
  TensorView k_ends;    ///< instead of row_ends
};
/// Errors: invalid_argument  the operands do not fit together
void run_product(Steps& steps, const Product& product, const TensorView& out);

/// The list as row_ends of `limit` rows (or k), in scratch. Entries outside are faults.
TensorView ends_of(Steps& steps, const TensorView& group_list, std::int64_t kind, std::int64_t groups,
                   std::int64_t limit);

/// One tensor as a list, an absent one as none.
TensorList list_of(const TensorView& view);

/// What a matmul operator costs at least: each tensor once, and two operations for each product.
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
