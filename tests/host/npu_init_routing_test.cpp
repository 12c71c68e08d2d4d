#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include "host/npu/describe_routing.hpp"
#include "tests/host/npu_routing_case.hpp"

namespace moecl::test {
namespace {

class NpuInitRoutingTest : public RoutingProperty {};
MOECL_ON_EVERY_DEVICE(NpuInitRoutingTest);

TEST_P(NpuInitRoutingTest, InitRoutingAgreesWithTheOracle) {
  for_each_case([&](RoutingCase& c) {
    const DType dtype = one_of(c.engine, floats);
    const Matrix x = c.matrix(c.tokens);
    const Ints row_idx = c.permutation(c.slots()), ids = c.ints(c.slots(), 0, c.coin() ? 5 : (1 << 24) - 1);
    const GuardedTensor device_x = c.upload(dtype, {c.tokens, c.hidden}, x.values),
                        device_row_idx = c.upload({c.tokens, c.top_k}, row_idx),
                        device_ids = c.upload({c.tokens, c.top_k}, ids);
    npu::MoeInitRoutingArgs args;
    args.x = device_x;
    args.row_idx = device_row_idx;
    args.expert_idx = device_ids;
    args.active_num = c.pick(0, c.tokens + 2);
    expect_outputs(c.device, args, exactly(oracle::moe_init_routing(x, row_idx, ids, args.active_num)));
  });
}

TEST_P(NpuInitRoutingTest, ComputeExpertTokensAgreesWithTheOracle) {
  for_each_case([&](RoutingCase& c) {
    npu::MoeComputeExpertTokensArgs args;
    args.num_expert = c.pick(1, 20);
    Ints ids = c.ints(c.slots(), 0, args.num_expert);  // num_expert itself: no expert
    std::sort(ids.begin(), ids.end());
    const GuardedTensor device_ids = c.upload({c.slots()}, ids);
    args.sorted_expert_for_source_row = device_ids;
    expect_outputs(c.device, args, exactly({oracle::moe_compute_expert_tokens(ids, args.num_expert)}));
  });
}

/// Rows whose largest magnitude is 127 powers of two, the others multiples of half of it: quotients are exact and often
/// in the middle between two integers.
Matrix rows_with_ties(RoutingCase& c) {
  Matrix x = c.matrix(c.tokens);
  for (std::int64_t row = 0; row < c.tokens; ++row) {
    const double unit = std::ldexp(1, static_cast<int>(c.pick(-4, 2)));
    double* values = &x.values[static_cast<std::size_t>(row * c.hidden)];
    for (std::int64_t h = 0; h < c.hidden; ++h) values[h] = static_cast<double>(c.pick(-253, 253)) * unit / 2;
    values[c.pick(0, c.hidden - 1)] = c.coin() ? 127 * unit : -127 * unit;
    if (c.pick(0, 9) == 0) std::fill_n(values, c.hidden, 0.0);
  }
  return x;
}

/// A quant_mode that gives MX rows, by its rules.
struct MxMode {
  std::int64_t quant_mode;
  Minifloat format;
  bool ceil;
  float least_amax;
};
const std::vector<MxMode> mx_modes = {{2, fp8_e5m2, true, 0},
                                      {3, fp8_e4m3fn, true, 0},
                                      {9, fp4_e2m1, false, 0},
                                      {16, fp8_e5m2, true, 1e-4F},
                                      {17, fp8_e4m3fn, true, 1e-4F}};

/// Rows of halves, tiny ones and zeros.
Matrix rows_for_mx(RoutingCase& c) {
  Matrix x = c.matrix(c.tokens);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(c.hidden);
    x.values[i] *= row % 4 == 3 ? 0 : row % 4 == 2 ? 0x1p-24 : 0.5;
  }
  return x;
}

/// Sometimes turns a case into one of MX rows.
void maybe_mx(RoutingCase& c, npu::MoeInitRoutingV2Args& args, oracle::InitRoutingV2& in) {
  if (c.pick(0, 2) != 0) return;
  const MxMode& mode = one_of(c.engine, mx_modes);
  if (mode.format.bits() == 4) c.hidden = 2 * c.hidden;
  args.quant_mode = in.quant_mode = mode.quant_mode;
  in.mx.emplace();
  in.mx->format = mode.format;
  if (mode.ceil) in.mx->scale_rule = mx_quantize::ScaleRule::ceil_ratio;
  in.mx->least_scale = mode.ceil ? 1 : 0;
  in.mx->least_amax = mode.least_amax;
}

TEST_P(NpuInitRoutingTest, InitRoutingV2AgreesWithTheOracle) {
  for_each_case([&](RoutingCase& c) {
    npu::MoeInitRoutingV2Args args;
    oracle::InitRoutingV2 in;
    args.quant_mode = in.quant_mode = c.pick(-1, 1);
    maybe_mx(c, args, in);
    const DType dtype = one_of(c.engine, in.quant_mode == -1 ? movable : floats);
    args.expert_num = in.expert_num = in.end = c.pick(1, 12);
    in.drop_pad = c.pick(0, 3) == 0;
    if (!in.drop_pad && c.coin()) {
      in.first = c.pick(0, in.expert_num - 1);
      in.end = c.pick(in.first + 1, in.expert_num);
      args.active_expert_range = {in.first, in.end};
    }
    args.drop_pad_mode = in.drop_pad ? 1 : 0;
    if (in.drop_pad) args.expert_capacity = in.expert_capacity = c.pick(1, 4);
    args.active_num = in.active_num = c.pick(-1, c.slots() + 2);
    args.expert_tokens_num_type = in.tokens_num_type = c.pick(0, 2);
    args.expert_tokens_num_flag = c.pick(0, 9) != 0;
    in.slots_of_rows = !in.drop_pad && c.coin();
    args.row_idx_type = in.slots_of_rows ? 1 : 0;
    in.ties_away = c.coin();
    args.rounding = in.ties_away ? npu::RoutingRounding::general_template : npu::RoutingRounding::ties_even;
    in.top_k = static_cast<std::size_t>(c.top_k);
    in.x = in.mx ? rows_for_mx(c) : in.quant_mode == 1 ? rows_with_ties(c) : c.matrix(c.tokens);
    in.expert_idx = c.ints(c.slots(), -2, in.expert_num + 1);

    const std::int64_t smooth_rows = c.coin() ? in.end - in.first : 1;
    if (in.quant_mode == -1 && c.coin()) {
      in.scale = normal(static_cast<std::size_t>(c.tokens), c.engine());
    } else if (in.quant_mode == 1 && c.coin()) {
      in.scale.resize(static_cast<std::size_t>(smooth_rows * c.hidden));
      for (std::int64_t row = 0; row < smooth_rows; ++row)  // one power of two a row keeps the quotients exact
        std::fill_n(in.scale.begin() + row * c.hidden, c.hidden, std::ldexp(1, static_cast<int>(c.pick(-2, 2))));
    } else if (in.quant_mode == 0) {
      in.scale = {static_cast<double>(c.pick(1, 9)) / 8};
      in.offset = {static_cast<double>(c.pick(-40, 40)) / 4};
    }
    in.scale = rounded(DType::f32, in.scale);
    const GuardedTensor x = c.upload(dtype, {c.tokens, c.hidden}, in.x.values),
                        ids = c.upload({c.tokens, c.top_k}, in.expert_idx),
                        offset = c.upload(DType::f32, {static_cast<std::int64_t>(in.offset.size())}, in.offset);
    const GuardedTensor scale = in.quant_mode == 1 && !in.scale.empty()
                                    ? c.upload(DType::f32, {smooth_rows, c.hidden}, in.scale)
                                    : c.upload(DType::f32, {static_cast<std::int64_t>(in.scale.size())}, in.scale);
    args.x = x;
    args.expert_idx = ids;
    if (!in.scale.empty()) args.scale = scale;
    if (!in.offset.empty()) args.offset = offset;
    std::vector<Expected> expected = exactly(oracle::moe_init_routing_v2(in));
    if (!args.expert_tokens_num_flag) expected[2] = {};
    if (!device().caps().correctly_rounded_divide && in.quant_mode == 1) {
      expected[0].absolute = 1;
      expected[3].relative = 1e-6;
    }
    expect_outputs(c.device, args, expected);
  });
}

}  // namespace
}  // namespace moecl::test
