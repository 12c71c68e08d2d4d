// The operators through the C interface: a recorded case of each, defaults, refusals.
#include "tests/host/c_npu.h"

#include <moecl/npu_activation.h>
#include <moecl/npu_distribute.h>
#include <moecl/npu_gating.h>
#include <moecl/npu_matmul.h>
#include <moecl/npu_quant.h>
#include <moecl/npu_routing.h>

#include <cstring>
#include <set>

#include "host/npu/describe_activation.hpp"
#include "host/npu/describe_distribute.hpp"
#include "host/npu/describe_gating.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/describe_quant.hpp"
#include "host/npu/describe_routing.hpp"
#include "host/npu/operator.hpp"
#include "tests/host/c_npu_case.hpp"

namespace moecl::test {
namespace {

/// Calls with(Args{}, COperator, case) for every operator.
template <class With>
void for_each_operator(With with) {
#define WITH(Args, function, name) \
  with(npu::Args(), COperator<function##_args>{function##_defaults, function##_plan, function}, name)
  WITH(MoeInitRoutingArgs, moecl_moe_init_routing, "npu_moe_init_routing/base_f16");
  WITH(MoeInitRoutingV2Args, moecl_moe_init_routing_v2, "npu_moe_init_routing_v2/dynamic_active_less");
  WITH(MoeComputeExpertTokensArgs, moecl_moe_compute_expert_tokens, "npu_moe_compute_expert_tokens/gaps");
  WITH(MoeTokenPermuteArgs, moecl_moe_token_permute, "npu_moe_token_permute/num_out_negative");
  WITH(MoeTokenPermuteArgs, moecl_moe_token_permute, "npu_moe_token_permute/int8");  // num_out_tokens: MOECL_NONE
  WITH(MoeTokenUnpermuteArgs, moecl_moe_token_unpermute, "npu_moe_token_unpermute/probs_f32_on_bf16");
  WITH(MoeReRoutingArgs, moecl_moe_re_routing, "npu_moe_re_routing/int8_scales_i64_empty_blocks");
  WITH(MoeFinalizeRoutingArgs, moecl_moe_finalize_routing, "npu_moe_finalize_routing/mode1_droppad");
  WITH(MoeGatingTopKArgs, moecl_moe_gating_top_k, "npu_moe_gating_top_k/out_flag_eps");
  WITH(MoeGatingTopKSoftmaxArgs, moecl_moe_gating_top_k_softmax, "npu_moe_gating_top_k_softmax/finished_bf16");
  WITH(MoeGatingTopKSoftmaxV2Args, moecl_moe_gating_top_k_softmax_v2,
       "npu_moe_gating_top_k_softmax_v2/plain_output_softmax");
  WITH(DynamicQuantArgs, moecl_dynamic_quant, "npu_dynamic_quant/int4_bf16_smooth_group");
  WITH(DynamicQuantAsymmetricArgs, moecl_dynamic_quant_asymmetric,
       "npu_dynamic_quant_asymmetric/int8_smooth_group_f16");
  WITH(DynamicMxQuantArgs, moecl_dynamic_mx_quant, "npu_dynamic_mx_quant/e4m3_axis0");
  WITH(SwigluArgs, moecl_swiglu, "npu_swiglu/last_bf16");
  WITH(DequantSwigluQuantArgs, moecl_dequant_swiglu_quant, "npu_dequant_swiglu_quant/int32_groups_quant_scale");
  WITH(CAscendDequantSwigluQuantArgs, moecl_c_ascend_dequant_swiglu_quant, "_C_ascend.npu_dequant_swiglu_quant/limit");
  WITH(QuantMatmulArgs, moecl_quant_matmul, "npu_quant_matmul/bf16_bias_int32");
  WITH(GroupedMatmulArgs, moecl_grouped_matmul, "npu_grouped_matmul/lists_group_type_minus1");
  WITH(GroupedMatmulArgs, moecl_grouped_matmul, "npu_grouped_matmul/int8_pertoken_bf16");
  WITH(GroupedMatmulSwigluQuantArgs, moecl_grouped_matmul_swiglu_quant, "npu_grouped_matmul_swiglu_quant/cumsum_base");
  WITH(GroupedMatmulSwigluQuantV2Args, moecl_grouped_matmul_swiglu_quant_v2,
       "npu_grouped_matmul_swiglu_quant_v2/count_base");
  WITH(CAscendGroupedMatmulSwigluQuantArgs, moecl_c_ascend_grouped_matmul_swiglu_quant,
       "_C_ascend.grouped_matmul_swiglu_quant/swiglu_limit");
  WITH(GroupedMatmulFinalizeRoutingArgs, moecl_grouped_matmul_finalize_routing,
       "npu_grouped_matmul_finalize_routing/base");
#undef WITH
}

/// Calls with(Args{}, COperator) for every operator of several ranks; c_ranks_test.cpp runs them.
template <class With>
void for_each_collective(With with) {
#define WITH(Args, function) \
  with(npu::Args(), COperator<function##_args, moecl_communicator>{function##_defaults, function##_plan, function})
  WITH(MoeDistributeDispatchArgs, moecl_moe_distribute_dispatch);
  WITH(MoeDistributeDispatchV2Args, moecl_moe_distribute_dispatch_v2);
  WITH(MoeDistributeCombineArgs, moecl_moe_distribute_combine);
  WITH(MoeDistributeCombineV2Args, moecl_moe_distribute_combine_v2);
#undef WITH
}

template <class... Values>
constexpr bool same(Values... pairs) {
  const int numbers[] = {static_cast<int>(pairs)...};
  for (std::size_t i = 0; i < sizeof...(pairs); i += 2)
    if (numbers[i] != numbers[i + 1]) return false;
  return true;
}
static_assert(same(MOECL_STRICT, npu::Validation::strict, MOECL_COMPATIBLE, npu::Validation::compatible));
static_assert(same(MOECL_TAIL_UNTOUCHED, npu::Tail::untouched, MOECL_TAIL_POISON, npu::Tail::poison, MOECL_TAIL_ZERO,
                   npu::Tail::zero));
static_assert(same(MOECL_ROUTING_TIES_EVEN, npu::RoutingRounding::ties_even, MOECL_ROUTING_GENERAL_TEMPLATE,
                   npu::RoutingRounding::general_template));
static_assert(same(MOECL_QUANT_INT8, npu::QuantType::int8, MOECL_QUANT_QUINT4X2, npu::QuantType::quint4x2,
                   MOECL_QUANT_FLOAT8_E4M3FN, npu::QuantType::float8_e4m3fn, MOECL_QUANT_FLOAT8_E5M2,
                   npu::QuantType::float8_e5m2));
static_assert(same(MOECL_DYNAMIC_QUANT_DIVIDE, npu::DynamicQuantRounding::divide,
                   MOECL_DYNAMIC_QUANT_DIVIDE_BY_MULSCALE, npu::DynamicQuantRounding::divide_by_mulscale,
                   MOECL_DYNAMIC_QUANT_PLAIN_TEMPLATE, npu::DynamicQuantRounding::plain_template,
                   MOECL_DYNAMIC_QUANT_MULTIROW_TEMPLATE, npu::DynamicQuantRounding::multirow_template));
static_assert(same(MOECL_DEQUANT_SWIGLU_INT8, npu::DequantSwigluType::int8, MOECL_DEQUANT_SWIGLU_FLOAT8_E4M3FN,
                   npu::DequantSwigluType::float8_e4m3fn, MOECL_DEQUANT_SWIGLU_FLOAT8_E5M2,
                   npu::DequantSwigluType::float8_e5m2));
static_assert(same(MOECL_MX_FLOAT4_E2M1FN_X2, npu::MxType::float4_e2m1fn_x2, MOECL_MX_FLOAT4_E1M2FN_X2,
                   npu::MxType::float4_e1m2fn_x2, MOECL_MX_FLOAT8_E4M3FN, npu::MxType::float8_e4m3fn,
                   MOECL_MX_FLOAT8_E5M2, npu::MxType::float8_e5m2));
static_assert(same(MOECL_CODE_NONE, npu::CodeType::none, MOECL_CODE_E4M3, npu::CodeType::e4m3, MOECL_CODE_E5M2,
                   npu::CodeType::e5m2, MOECL_CODE_E2M1, npu::CodeType::e2m1, MOECL_CODE_FLOAT8_E8M0FNU,
                   npu::CodeType::float8_e8m0fnu));
static_assert(same(MOECL_ROUND_MODE_RINT, npu::RoundMode::rint, MOECL_ROUND_MODE_ROUND, npu::RoundMode::round,
                   MOECL_ROUND_MODE_FLOOR, npu::RoundMode::floor, MOECL_ROUND_MODE_CEIL, npu::RoundMode::ceil,
                   MOECL_ROUND_MODE_TRUNC, npu::RoundMode::trunc));
static_assert(same(MOECL_ROW_CODE_NONE, npu::RowCodeType::none, MOECL_ROW_CODE_E2M1, npu::RowCodeType::e2m1,
                   MOECL_ROW_CODE_E1M2, npu::RowCodeType::e1m2, MOECL_ROW_CODE_HIF8, npu::RowCodeType::hif8));
static_assert(same(MOECL_COMM_ALG_DEFAULT, npu::CommAlg::by_default, MOECL_COMM_ALG_FULLMESH, npu::CommAlg::fullmesh,
                   MOECL_COMM_ALG_FULLMESH_V1, npu::CommAlg::fullmesh_v1, MOECL_COMM_ALG_FULLMESH_V2,
                   npu::CommAlg::fullmesh_v2, MOECL_COMM_ALG_HIERARCHY, npu::CommAlg::hierarchy));
static_assert(same(MOECL_SWIGLU_QUANT_RECIPROCAL, npu::SwigluQuantRounding::reciprocal,
                   MOECL_SWIGLU_QUANT_DOUBLE_ROUNDING, npu::SwigluQuantRounding::double_rounding));

/// Every parameter of the C++ Args or of the C struct, as a number.
struct ParameterNumbers {
  std::vector<double> numbers;

  static double number(std::int64_t value) { return static_cast<double>(value); }
  static double number(std::int32_t value) { return value; }
  static double number(double value) { return value; }
  static double number(bool value) { return value ? 1 : 0; }
  static double number(const std::optional<std::int64_t>& value) { return number(value.value_or(MOECL_NONE)); }
  static double number(const std::optional<DType>& value) { return value ? c_dtype(*value) : MOECL_DEFAULT_DTYPE; }
  static double number(const std::vector<std::int64_t>& value) { return static_cast<double>(value.size()); }
  static double number(const moecl_int_list& value) { return static_cast<double>(value.count); }
  static double number(const std::string& value) { return static_cast<double>(value.size()); }
  static double number(const char* value) { return value == nullptr ? 0 : static_cast<double>(std::strlen(value)); }

  template <class... Rest>
  void input(const Rest&...) {}
  template <class... Rest>
  void output(const Rest&...) {}
  template <class T>
  void parameter(const char*, const T& value, const char*) {
    numbers.push_back(number(value));
  }
  template <class T, class Names>
  void choice(const char*, const T& value, const char*, const Names&) {
    numbers.push_back(number(static_cast<std::int64_t>(value)));
  }
};

template <class Args, class From>
std::vector<double> parameter_numbers(From& from) {
  ParameterNumbers visit;
  npu::Describe<Args>::fields(from, visit);
  return visit.numbers;
}

template <class T, class... Ts>
concept is_one_of = (std::is_same_v<T, Ts> || ...);
/// Converts to any member of an operator's Args; for an optional, to the type that it holds.
struct Anything {
  template <class T>
  requires std::is_enum_v<T> || is_one_of < T, TensorView, npu::TensorList, std::vector<std::int64_t>, std::string,
      std::int64_t,
  double, bool > operator T() const;
};
template <class T, class... Before>
constexpr std::size_t members() {
  if constexpr (requires { T{Before{}..., Anything{}}; })
    return members<T, Before..., Anything>();
  else
    return sizeof...(Before);
}

struct FieldCount {
  std::size_t count = 0;

  template <class... Rest>
  void input(const Rest&...) {
    ++count;
  }
  template <class... Rest>
  void parameter(const Rest&...) {
    ++count;
  }
  template <class... Rest>
  void choice(const Rest&...) {
    ++count;
  }
  template <class... Rest>
  void output(const Rest&...) {
    ++count;
  }
};

/// The C structs are written from the descriptions; the C++ structs are written by hand.
TEST(CNpu, DescriptionsHaveEveryMember) {
  const auto compare = [](auto args) {
    using Args = decltype(args);
    FieldCount visitor;
    npu::Describe<Args>::fields(args, visitor);
    EXPECT_EQ(visitor.count, members<Args>()) << npu::Describe<Args>::name;
  };
  for_each_operator([&](auto args, auto, const char*) { compare(args); });
  for_each_collective([&](auto args, auto) { compare(args); });
}

TEST(CNpu, HasEveryOperatorWithItsDefaults) {
  std::set<std::string> here, all;
  const auto expect_defaults = [&]<class Args, class CArgs, class On>(Args cpp, const COperator<CArgs, On>& with) {
    here.insert(npu::Describe<Args>::name);
    CArgs c;
    std::memset(static_cast<void*>(&c), 0x5a, sizeof(c));
    c.size_bytes = sizeof(c);
    ASSERT_OK(with.defaults(&c));
    EXPECT_EQ(parameter_numbers<Args>(c), parameter_numbers<Args>(cpp)) << npu::Describe<Args>::name;
  };
  for_each_operator([&](const auto& cpp, const auto& with, const char*) { expect_defaults(cpp, with); });
  for_each_collective([&](const auto& cpp, const auto& with) { expect_defaults(cpp, with); });
  for (const npu::Operator& about : npu::operators()) all.insert(about.name);
  EXPECT_EQ(here, all);
}

TEST(CNpu, RunsInACProgramOnEveryDevice) {
  std::int32_t count = 0, ran = 0;
  ASSERT_OK(moecl_device_count(&count));
  for (std::int32_t i = 0; i < count; ++i) {
    auto info = sized<moecl_device_info>();
    ASSERT_OK(moecl_device_describe(i, &info));
    if (info.refused[0] != '\0') continue;
    std::int32_t wrong = -1;
    const char* failed = c_npu_run(i, &wrong);
    ASSERT_EQ(failed, nullptr) << failed;
    EXPECT_EQ(wrong, 0) << info.platform_name;
    ++ran;
  }
  EXPECT_EQ(ran, static_cast<std::int32_t>(devices().size()));
}

class CNpuTest : public OnEveryDevice {
 protected:
  void SetUp() override {
    ASSERT_OK(moecl_context_wrap(caller_.context, nullptr, context_.out()));
    ASSERT_OK(moecl_stream_wrap(context_, caller_.queue, stream_.out()));
  }

  CallersQueue caller_{device()};
  ContextHandle context_;
  StreamHandle stream_;
  std::uint64_t workspace_bytes_ = 0;
};
MOECL_ON_EVERY_DEVICE(CNpuTest);

TEST_P(CNpuTest, RecordedCases) {
  for_each_operator([&]<class Args, class CArgs>(const Args&, const COperator<CArgs>& with, const char* name) {
    SCOPED_TRACE(name);
    CallersCase of(device(), name, {});
    const Outcome outcome = run_case<Args>(of, with);
    EXPECT_OK(outcome.call);
    EXPECT_OK(outcome.fault);
  });
}

// A tensor of any strides is read and written correctly, or refused; weights are never refused.
TEST_P(CNpuTest, ReadsGapsOrRefusesThem) {
  for_each_operator([&]<class Args, class CArgs>(const Args&, const COperator<CArgs>& with, const char* name) {
    CallersCase whole(device(), name, {});
    ASSERT_OK(run_case<Args>(whole, with).call);
    const std::vector<std::string>& tensors = whole.tensors;
    for (int tensor = 0; tensor < static_cast<int>(tensors.size()); ++tensor)
      for (const Gaps& gaps : {Gaps{tensor, 2, 0}, Gaps{tensor, 1, 3}}) {
        CallersCase of(device(), name, gaps);
        const std::string& which = tensors[static_cast<std::size_t>(tensor)];
        SCOPED_TRACE(std::string(name) + ": " + which + (gaps.apart > 1 ? ", elements apart" : ", rows apart"));
        const auto [status, fault] = run_case<Args>(of, with);
        EXPECT_OK(fault);
        const bool weight = which.rfind("in.weight.", 0) == 0 || which == "in.weight" || which == "in.x2";
        EXPECT_TRUE(status == MOECL_OK || (status == MOECL_INVALID_ARGUMENT && !weight)) << moecl_last_error_message();
      }
  });
}

TEST_P(CNpuTest, ReportsFaultsInData) {
  using Args = moecl_moe_token_permute_args;
  const COperator<Args> permute{moecl_moe_token_permute_defaults, moecl_moe_token_permute_plan,
                                moecl_moe_token_permute};
  CallersCase of(device(), "npu_moe_token_permute/int8", {});
  const auto outcome = [&] {
    return run_case<npu::MoeTokenPermuteArgs, Args>(of, permute, [&](Args& args, moecl_call&) {
      const std::int32_t index = -7;
      EXPECT_EQ(clEnqueueWriteBuffer(of.caller.queue, args.indices.memory, CL_TRUE, args.indices.offset_bytes,
                                     sizeof(index), &index, 0, nullptr, nullptr),
                CL_SUCCESS);
    });
  };
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "-7", outcome().fault);
}

TEST_P(CNpuTest, RefusesWrongTensors) {
  moecl_swiglu_args args{};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "size_bytes is 0", moecl_swiglu_defaults(&args));
  args = sized<moecl_swiglu_args>();
  ASSERT_OK(moecl_swiglu_defaults(&args));
  const auto plan = [&] { return moecl_swiglu_plan(stream_, &args, &workspace_bytes_); };
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: expected f32, f16 or bf16", plan());
  args.x = {nullptr, 0, MOECL_F32, 2, {3, 4}, {}};
  ASSERT_OK(plan());
  EXPECT_EQ(args.y.rank, 2);
  EXPECT_EQ(args.y.shape[1], 2);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "npu_swiglu: x: f32[3, 4] needs 12 elements, its memory has 0 bytes",
               moecl_swiglu(stream_, &args, nullptr, 0, nullptr, nullptr));
  args.x.dtype = 77;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: 77 is no moecl_dtype", plan());
  args.x.dtype = MOECL_DEFAULT_DTYPE;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: dtype is not set", plan());
  args.x.rank = 5;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: rank 5 is not in [0, 4]", plan());
  moecl_call how = sized<moecl_call>();
  how.tail = 9;
  args.x = {nullptr, 0, MOECL_F32, 2, {0, 4}, {}};
  ASSERT_OK(plan());
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "call.tail: 9", moecl_swiglu(stream_, &args, &how, 0, nullptr, nullptr));
  how.tail = MOECL_TAIL_ZERO, how.validation = 2;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "call.validation: 2", moecl_swiglu(stream_, &args, &how, 0, nullptr, nullptr));
  EXPECT_OK(moecl_swiglu(stream_, &args, nullptr, 0, nullptr, nullptr));
}

TEST_P(CNpuTest, RefusesWrongLists) {
  moecl_grouped_matmul_args args = sized<moecl_grouped_matmul_args>();
  ASSERT_OK(moecl_grouped_matmul_defaults(&args));
  const auto plan = [&] { return moecl_grouped_matmul_plan(stream_, &args, &workspace_bytes_); };
  moecl_tensor x[2] = {{nullptr, 0, MOECL_F32, 2, {3, 4}, {}}, {nullptr, 0, MOECL_F32, 2, {5, 6}, {}}},
               weight[2] = {{nullptr, 0, MOECL_F32, 2, {4, 7}, {}}, {nullptr, 0, MOECL_F32, 2, {6, 8}, {}}}, y[2] = {};
  args.x = {nullptr, 2};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: 2 tensors at NULL", plan());
  args.x = {x, -1};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: -1 tensors at an array", plan());
  args.x = {x, 2}, args.weight = {weight, 2}, args.y = {y, 1};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "y: room for 2 tensors is needed, got 1", plan());
  args.y = {y, 2};
  ASSERT_OK(plan());
  EXPECT_EQ(y[1].shape[0], 5);
  EXPECT_EQ(y[1].shape[1], 8);
}

TEST_P(CNpuTest, RefusesWrongParameters) {
  moecl_dynamic_quant_args quant = sized<moecl_dynamic_quant_args>();
  ASSERT_OK(moecl_dynamic_quant_defaults(&quant));
  quant.x = {nullptr, 0, MOECL_F16, 2, {3, 8}, {}};
  quant.dst_type = MOECL_QUANT_FLOAT8_E5M2 + 1;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "dst_type: 4 is not in [0, 4)",
               moecl_dynamic_quant_plan(stream_, &quant, &workspace_bytes_));
  moecl_dynamic_quant_asymmetric_args asymmetric = sized<moecl_dynamic_quant_asymmetric_args>();
  ASSERT_OK(moecl_dynamic_quant_asymmetric_defaults(&asymmetric));
  asymmetric.x = quant.x;
  asymmetric.dst_type = MOECL_QUANT_FLOAT8_E4M3FN;
  EXPECT_FAILS(MOECL_UNSUPPORTED, "dst_type",
               moecl_dynamic_quant_asymmetric_plan(stream_, &asymmetric, &workspace_bytes_));

  moecl_moe_gating_top_k_args gating = sized<moecl_moe_gating_top_k_args>();
  ASSERT_OK(moecl_moe_gating_top_k_defaults(&gating));
  gating.out_flag = 2;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "out_flag: 2 is neither 0 nor 1",
               moecl_moe_gating_top_k_plan(stream_, &gating, &workspace_bytes_));

  moecl_moe_init_routing_v2_args routing = sized<moecl_moe_init_routing_v2_args>();
  ASSERT_OK(moecl_moe_init_routing_v2_defaults(&routing));
  routing.active_expert_range.count = 2;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "active_expert_range: 2 numbers at NULL",
               moecl_moe_init_routing_v2_plan(stream_, &routing, &workspace_bytes_));

  moecl_quant_matmul_args product = sized<moecl_quant_matmul_args>();
  ASSERT_OK(moecl_quant_matmul_defaults(&product));
  product.output_dtype = 77;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "output_dtype: 77 is no moecl_dtype",
               moecl_quant_matmul_plan(stream_, &product, &workspace_bytes_));
}

}  // namespace
}  // namespace moecl::test
