#include "host/npu/product.hpp"

#include <moecl/grouped_gemm.hpp>
#include <moecl/pack_weights.hpp>

#include <algorithm>

namespace moecl::npu {
namespace {

constexpr std::int64_t int4_per_word = 8;

bool is_integer(DType dtype) { return dtype == DType::i8 || dtype == DType::i32; }

/// [K, N] or [E, K, N] as [E, N, K], the way pack_weights reads it.
TensorView as_columns(const TensorView& weight) {
  TensorView view = weight;
  const int first = weight.rank - 2;
  view.rank = 3;
  view.shape = {first == 0 ? 1 : weight.shape[0], weight.shape[first + 1], weight.shape[first]};
  view.stride = {first == 0 ? 0 : weight.stride[0], weight.stride[first + 1], weight.stride[first]};
  return view;
}

PackedWeights pack(Steps& steps, const TensorList& weight, const WeightShape& shape, DType dtype,
                   const TensorView& scale, const TensorView& offset) {
  const std::uint64_t size = PackedWeights::size_bytes(code_type(dtype), shape.experts, shape.n, shape.k);
  const PackedWeights packed{steps.scratch_bytes(size), code_type(dtype), shape.experts, shape.n, shape.k};
  const auto experts = shape.experts / static_cast<std::int64_t>(weight.size());
  std::int64_t expert = 0;
  for (const TensorView& matrices : weight) {
    pack_weights::Args args{as_columns(matrices), packed, expert};
    if (scale.present()) args.scale = scale.rows(expert, experts);
    if (offset.present()) args.offset = offset.rows(expert, experts);
    steps.run(args);
    expert += experts;
  }
  return packed;
}

/// The experts' vectors as [E, G, N] or [E, 1, 1], from one tensor for all experts or from a list with one for each.
TensorView stacked(Steps& steps, const char* name, const TensorList& list, const WeightShape& weights) {
  if (list.empty()) return {};
  const auto lists = static_cast<std::int64_t>(list.size());
  const TensorView& first = list.front();
  const std::int64_t width = first.rank > 0 ? first.shape[first.rank - 1] : 0;
  const std::int64_t each = weights.experts / lists * width;
  require((lists == 1 || lists == weights.experts) && (width == weights.n || width == 1) && each > 0 &&
              first.elements() > 0 && first.elements() % each == 0 &&
              (weights.experts == 1 || lists != 1 || first.shape[0] == weights.experts),
          "{}: expected [{}, {}] or a group of them for each expert, got {} tensors, the first {}", name,
          weights.experts, weights.n, lists, first);
  const std::int64_t groups = first.elements() / each;
  if (lists == 1) return reshaped(first, {weights.experts, groups, width});
  const TensorView all = steps.scratch(first.dtype, {weights.experts, groups, width});
  for (std::int64_t expert = 0; expert < lists; ++expert)
    steps.copy(reshaped(list[static_cast<std::size_t>(expert)], {1, groups, width}), all.rows(expert, 1));
  return all;
}

/// [E, 1, N] as [E, N].
TensorView without_groups(const char* name, const TensorView& vectors) {
  if (!vectors.present()) return {};
  require(vectors.shape[1] == 1, "{}: expected one value for each column, got {}", name, vectors);
  return reshaped(vectors, {vectors.shape[0], vectors.shape[2]});
}

void expect_absent(const char* name, const TensorList& list, const char* when) {
  require(list.empty(), "{}: is not for {}, got {}", name, when, list.empty() ? "" : list.front().describe());
}

/// x is float; weights are float or are converted to x's dtype.
void float_product(Steps& steps, const Product& product, const WeightShape& weights, grouped_gemm::Args& args) {
  expect_absent("scale", product.scale, "float x");
  expect_absent("offset", product.offset, "float x");
  require(!product.x_scale.present(), "per_token_scale: is not for float x, got {}", product.x_scale);
  const TensorView scale = stacked(steps, "antiquant_scale", product.antiquant_scale, weights),
                   offset = stacked(steps, "antiquant_offset", product.antiquant_offset, weights);
  require(scale.present() == is_integer(weights.dtype),
          "antiquant_scale: expected for integer weights beside float x, got {} for {} weights", scale,
          name(weights.dtype));
  args.weights =
      pack(steps, product.weight, weights, is_integer(weights.dtype) ? product.x.dtype : weights.dtype, scale, offset);
  args.bias = without_groups("bias", stacked(steps, "bias", product.bias, weights));
}

void integer_product(Steps& steps, const Product& product, const WeightShape& weights, grouped_gemm::Args& args) {
  require(product.x.dtype == DType::i8 && is_integer(weights.dtype),
          "weight: expected i8 or int4 in i32 as x is {}, got {}", name(product.x.dtype), name(weights.dtype));
  expect_absent("antiquant_scale", product.antiquant_scale, "i8 x");
  expect_absent("antiquant_offset", product.antiquant_offset, "i8 x");
  const TensorView bias = without_groups("bias", stacked(steps, "bias", product.bias, weights));
  (bias.dtype == DType::i32 ? args.sum_bias : args.bias) = bias;
  if (args.out.dtype == DType::i32) {
    require(!args.bias.present(), "bias: expected i32 for an i32 output, got {}", bias);
    args.weights = pack(steps, product.weight, weights, DType::i8, {}, {});
    return;
  }
  const TensorView scale = stacked(steps, "scale", product.scale, weights);
  require(scale.present(), "scale: is needed for an output of {}", name(args.out.dtype));
  args.a_scale = product.x_scale;
  if (scale.shape[1] > 1) {  // Scales of groups of K must be applied before the sum.
    args.weights = pack(steps, product.weight, weights, DType::f32, scale, {});
  } else {
    args.weights = pack(steps, product.weight, weights, DType::i8, {}, {});
    args.weight_scale = without_groups("scale", scale);
  }
  if (product.assist && weights.dtype == DType::i32 && args.bias.present()) {
    // The NPU multiplies the high nibble of x, and the low nibble minus 8. The assist matrix compensates for the 8.
    args.a_zero_point = 8;
    args.a_scale_bias = true;
  }
  if (product.offset.empty()) return;
  require(args.out.dtype == DType::i8 && !args.bias.present(),
          "offset: expected for an i8 output, without a float bias; the output is {}, bias {}", name(args.out.dtype),
          args.bias);
  args.bias = without_groups("offset", stacked(steps, "offset", product.offset, weights));
}

}  // namespace

WeightShape shape_of_weights(const TensorList& weight, std::int64_t k) {
  require(!weight.empty() && weight.front().present(), "weight: is needed");
  const TensorView& first = weight.front();
  require(first.rank == 2 || (first.rank == 3 && weight.size() == 1),
          "weight: expected one [E, K, N] or a list of [K, N], got {} tensors, the first {}", weight.size(), first);
  if (!is_activation_dtype(first.dtype) && !is_integer(first.dtype))
    fail(ErrorCode::unsupported, "weight: expected f32, f16, bf16, i8 or int4 in i32, got {}", first.describe());
  for (const TensorView& other : weight)
    require(other.dtype == first.dtype && shape_of(other) == shape_of(first),
            "weight: expected {} in the whole list, got {}", first, other);
  const std::int64_t rows = first.shape[first.rank - 2], columns = first.shape[first.rank - 1];
  const bool words_along_k = first.dtype == DType::i32 && rows * int4_per_word == k;
  require(rows == k || words_along_k, "weight: expected K = {} as x has, got {}", k, first);
  return {first.dtype, first.rank == 3 ? first.shape[0] : static_cast<std::int64_t>(weight.size()), k,
          first.dtype == DType::i32 && !words_along_k ? columns * int4_per_word : columns};
}

void run_product(Steps& steps, const Product& product, const TensorView& out) {
  require(product.x.rank == 2, "x: expected [M, K], got {}", product.x);
  const WeightShape weights = shape_of_weights(product.weight, product.x.shape[1]);
  if (out.elements() == 0) return;
  grouped_gemm::Args args;
  args.a = product.x;
  args.row_ends = product.row_ends;
  args.k_ends = product.k_ends;
  args.out = out;
  if (is_activation_dtype(product.x.dtype))
    float_product(steps, product, weights, args);
  else
    integer_product(steps, product, weights, args);
  steps.run(args);
}

TensorView ends_of(Steps& steps, const TensorView& group_list, std::int64_t kind, std::int64_t groups,
                   std::int64_t limit) {
  require(group_list.present(), "group_list: is needed");
  require(kind >= 0 && kind <= 2, "group_list_type: {} is not in [0, 2]", kind);
  group_list::Read read;
  read.list = group_list;
  read.kind = static_cast<group_list::Kind>(kind);
  read.rows = limit;
  read.row_ends = steps.scratch(DType::i32, {groups});
  read.fault = steps.fault();
  steps.run(read);
  return read.row_ends;
}

TensorList list_of(const TensorView& view) { return view.present() ? TensorList{view} : TensorList{}; }

}  // namespace moecl::npu
