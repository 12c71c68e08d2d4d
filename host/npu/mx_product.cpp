#include "host/npu/mx_product.hpp"

#include <moecl/grouped_gemm.hpp>
#include <moecl/pack_codes.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "runtime/quotient.hpp"

namespace moecl::npu {
namespace {

constexpr std::int64_t block = 32, pair = 2;

moecl::CodeType elements_of(const char* parameter, CodeType type) {
  switch (type) {
    case CodeType::e4m3:
      return moecl::CodeType::f8_e4m3;
    case CodeType::e5m2:
      return moecl::CodeType::f8_e5m2;
    case CodeType::e2m1:
      return moecl::CodeType::f4_e2m1;
    default:
      fail(ErrorCode::invalid_argument, "{}: expected e4m3, e5m2 or e2m1 where the other operand has codes, got {}",
           parameter, code_types[static_cast<std::size_t>(type)]);
  }
}

std::int64_t codes_per_byte(moecl::CodeType type) { return 8 / bits(type); }

struct Operands {
  moecl::CodeType x_type, weight_type;
  std::int64_t experts, rows, k, n, pairs;
};

Operands operands_of(const GroupedMatmulArgs& args) {
  Operands sizes{elements_of("x_dtype", args.x_dtype), elements_of("weight_dtype", args.weight_dtype), 0, 0, 0, 0, 0};
  const TensorView &x = args.x.front(), &weight = args.weight.front();
  require(x.rank == 2 && x.dtype == DType::u8, "x: expected u8 [M, K] codes, got {}", x);
  sizes.rows = x.shape[0], sizes.k = x.shape[1] * codes_per_byte(sizes.x_type);
  require(weight.rank == 3 && weight.dtype == DType::u8 && weight.shape[1] == sizes.k,
          "weight: expected u8 [E, {}, N] codes, got {}", sizes.k, weight);
  sizes.experts = weight.shape[0], sizes.n = weight.shape[2] * codes_per_byte(sizes.weight_type);
  sizes.pairs = quotient_up(sizes.k, pair * block);
  return sizes;
}

PackedWeights pack(Steps& steps, const GroupedMatmulArgs& args, const Operands& sizes) {
  const moecl::CodeType type = sizes.weight_type;
  PackedWeights packed{steps.scratch_bytes(PackedWeights::size_bytes(type, sizes.experts, sizes.n, sizes.k)), type,
                       sizes.experts, sizes.n, sizes.k};
  packed.group = block;
  packed.scale = steps.scratch(DType::u8, {sizes.experts, PackedWeights::panels(sizes.n), quotient_up(sizes.k, block),
                                           PackedWeights::panel_columns});
  pack_codes::Args step;
  step.packed = packed;
  step.codes.type = type;
  step.codes.rows = sizes.n, step.codes.columns = sizes.k;
  step.codes.row_stride = 1, step.codes.column_stride = args.weight.front().shape[2];
  step.codes.packed_along_rows = true;
  step.codes.unit_codes = static_cast<std::int32_t>(codes_per_byte(type));
  for (step.expert = 0; step.expert < sizes.experts; ++step.expert) {
    step.source = args.weight.front().rows(step.expert, 1).buffer;
    // [K / 64, N, 2] as [N, K / 64, 2].
    TensorView scale = args.scale.front().rows(step.expert, 1);
    scale.rank = 3;
    scale.shape = {sizes.n, sizes.pairs, pair};
    scale.stride = {pair, pair * sizes.n, 1};
    step.scale = scale;
    steps.run(step);
  }
  return packed;
}

}  // namespace

bool is_mx(const GroupedMatmulArgs& args) {
  return args.x_dtype != CodeType::none || args.weight_dtype != CodeType::none;
}

void infer_mx(GroupedMatmulArgs& args) {
  if (args.x.size() != 1 || args.weight.size() != 1 || args.group_type != 0 || args.split_item < 2)
    fail(ErrorCode::unsupported,
         "x_dtype: codes are multiplied with one x, one weight, group_type 0 and split_item 2 or 3");
  if (args.scale_dtype != CodeType::float8_e8m0fnu || args.per_token_scale_dtype != CodeType::float8_e8m0fnu)
    fail(ErrorCode::unsupported, "scale_dtype, per_token_scale_dtype: expected float8_e8m0fnu beside codes, got {}, {}",
         code_types[static_cast<std::size_t>(args.scale_dtype)],
         code_types[static_cast<std::size_t>(args.per_token_scale_dtype)]);
  require(args.bias.empty() && args.offset.empty() && args.antiquant_scale.empty() && args.antiquant_offset.empty() &&
              args.act_type == 0,
          "x_dtype: codes are multiplied without bias, offset, antiquant and act_type");
  const Operands sizes = operands_of(args);
  require(args.scale.size() == 1 && args.per_token_scale.size() == 1,
          "scale, per_token_scale: expected one each, got {}, {}", args.scale.size(), args.per_token_scale.size());
  expect_tensor(args.scale.front(), "scale", DType::u8, {sizes.experts, sizes.pairs, sizes.n, pair});
  expect_tensor(args.per_token_scale.front(), "per_token_scale", DType::u8, {sizes.rows, sizes.pairs, pair});
  const DType dtype = args.output_dtype.value_or(DType::bf16);
  require(is_activation_dtype(dtype), "output_dtype: expected f32, f16 or bf16, got {}", name(dtype));
  args.y.resize(1);
  set_shape(args.y.front(), dtype, {sizes.rows, sizes.n});
}

void run_mx_product(Steps& steps, const GroupedMatmulArgs& args, const TensorView& row_ends) {
  const Operands sizes = operands_of(args);
  if (args.y.front().elements() == 0) return;
  grouped_gemm::Args product;
  product.a = args.x.front();
  product.a.dtype = storage_dtype(sizes.x_type).value_or(DType::u8);
  product.a_group = block;
  product.a_scale = args.per_token_scale.front();
  product.a_scale.rank = 2;
  product.a_scale.shape = {sizes.rows, quotient_up(sizes.k, block)};
  product.a_scale.stride = {pair * sizes.pairs, 1};
  product.weights = pack(steps, args, sizes);
  product.row_ends = row_ends;
  product.out = args.y.front();
  steps.run(product);
}

}  // namespace moecl::npu
