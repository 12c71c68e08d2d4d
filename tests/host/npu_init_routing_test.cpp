#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include "host/npu/describe_routing.hpp"
#include "tests/host/npu_routing_case.hpp"
#include "tests/oracle/quantize_rows.hpp"

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

/// Rows whose largest magnitude is 127 times a power of two. The other values are multiples of half that power, so the
/// quotients are exact, and often ties between two integers.
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

/// A quant_mode that gives MX rows, and its rules.
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

/// Rows of halved values, of tiny values and of zeros.
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

using quantize_rows::Codes;

oracle::CodedRow as_values(const oracle::FloatRow& row, std::size_t align) {
  oracle::CodedRow out{{row.q.begin(), row.q.end()}, {row.scale.begin(), row.scale.end()}};
  while (out.scale.size() % align != 0) out.scale.push_back(0);
  return out;
}

/// A row times its smooth vector, as int4 codes with one scale, two codes to a byte.
oracle::CodedRow int4_row(const oracle::InitRoutingV2& in, std::vector<double> row, std::size_t expert) {
  const std::size_t smooth = in.scale.size() > row.size() ? expert * row.size() : 0;
  for (std::size_t h = 0; h < row.size() && !in.scale.empty(); ++h)
    row[h] = static_cast<float>(row[h]) * static_cast<float>(in.scale[smooth + h]);
  const oracle::QuantizedRow made =
      oracle::quantize_row(row, quantize_rows::Rounding::divide, quantize_rows::Scheme::symmetric, 7);
  oracle::CodedRow out{{}, {made.scale}};
  for (std::size_t h = 0; h < row.size(); h += 2) out.values.push_back((made.q[h] & 15) | (made.q[h + 1] & 15) << 4);
  return out;
}

/// The quant_modes that give neither int8 nor MX rows, as the document and op-plugin's test define them.
void set_coder(oracle::InitRoutingV2& in) {
  const std::int64_t mode = in.quant_mode;
  if (mode == 13) {
    in.coder = [&in](const std::vector<double>& row, std::size_t expert) { return int4_row(in, row, expert); };
  } else if (mode == 6 || mode == 7) {
    in.coder = [&in, mode](const std::vector<double>& row, std::size_t) {
      oracle::CodedRow out;
      for (const double x : row)
        out.values.push_back(
            mode == 6 ? oracle::float_code(static_cast<float>(x), Codes::hif8, false)
                      : oracle::float_code(static_cast<float>(x) * static_cast<float>(in.scale[0]), Codes::hif8));
      return out;
    };
  } else {
    oracle::FloatRules rules{mode == 8                               ? Codes::hif8
                             : mode == 4 || mode == 14 || mode == 11 ? Codes::e5m2
                                                                     : Codes::e4m3};
    rules.group = mode == 8 ? 0 : 128;
    rules.power_of_two = mode == 4 || mode == 5 || mode >= 14;
    rules.least_amax = mode >= 14 ? 1e-4F : 0;
    in.coder = [rules, mode](const std::vector<double>& row, std::size_t) {
      return as_values(oracle::quantize_row_to_floats(row, rules), mode == 11 || mode == 12 ? 2 : 1);
    };
  }
}

TEST_P(NpuInitRoutingTest, ModesOfA5AgreeWithTheOracle) {
  if (!device().caps().correctly_rounded_divide) GTEST_SKIP() << "quotients next to a tie may go either way";
  static const std::vector<std::int64_t> modes = {4, 5, 6, 7, 8, 11, 12, 13, 14, 15};
  for_each_case([&](RoutingCase& c) {
    npu::MoeInitRoutingV2Args args;
    oracle::InitRoutingV2 in;
    args.quant_mode = in.quant_mode = one_of(c.engine, modes);
    c.hidden = in.quant_mode == 13 ? 2 * c.hidden : 7 * c.hidden;
    args.expert_num = in.expert_num = in.end = c.pick(1, 8);
    in.drop_pad = c.pick(0, 3) == 0;
    args.drop_pad_mode = in.drop_pad ? 1 : 0;
    if (in.drop_pad) args.expert_capacity = in.expert_capacity = c.pick(1, 4);
    args.expert_tokens_num_flag = true;
    in.top_k = static_cast<std::size_t>(c.top_k);
    in.x = rows_for_mx(c);
    in.expert_idx = c.ints(c.slots(), -2, in.expert_num + 1);
    const bool smooth = in.quant_mode == 13 && c.coin();
    if (smooth) in.scale = rounded(DType::f32, normal(static_cast<std::size_t>(in.expert_num * c.hidden), c.engine()));
    if (in.quant_mode == 7) in.scale = {0.375};
    set_coder(in);
    const GuardedTensor x = c.upload(one_of(c.engine, floats), {c.tokens, c.hidden}, in.x.values),
                        ids = c.upload({c.tokens, c.top_k}, in.expert_idx),
                        scale = smooth ? c.upload(DType::f32, {in.expert_num, c.hidden}, in.scale)
                                       : c.upload(DType::f32, {static_cast<std::int64_t>(in.scale.size())}, in.scale);
    SCOPED_TRACE(testing::Message() << "quant_mode " << in.quant_mode);
    args.x = x;
    args.expert_idx = ids;
    if (!in.scale.empty()) args.scale = scale;
    expect_outputs(c.device, args, exactly(oracle::moe_init_routing_v2(in)));
  });
}

TEST_P(NpuInitRoutingTest, CodesTravelWithScalesOfBytes) {
  for_each_case([&](RoutingCase& c) {
    npu::MoeInitRoutingV2Args args;
    oracle::InitRoutingV2 in;
    args.expert_num = in.expert_num = in.end = c.pick(1, 8);
    args.active_num = in.active_num = c.pick(-1, c.slots() + 2);
    args.expert_tokens_num_flag = true;
    in.top_k = static_cast<std::size_t>(c.top_k);
    in.expert_idx = c.ints(c.slots(), -2, in.expert_num + 1);
    const std::int64_t each = 2 * c.pick(1, 3), hidden = c.hidden;
    const auto bytes = [&](std::int64_t width) {
      Matrix values{std::vector<double>(static_cast<std::size_t>(c.tokens * width)), static_cast<std::size_t>(width)};
      for (double& value : values.values) value = static_cast<double>(c.pick(0, 255));
      return values;
    };
    const Matrix codes = bytes(hidden), scales = bytes(each);
    in.x = scales;
    const oracle::Tensor moved_scales = oracle::moe_init_routing_v2(in)[0];
    in.x = codes;
    std::vector<oracle::Tensor> outputs = oracle::moe_init_routing_v2(in);
    outputs[3] = moved_scales;
    const GuardedTensor x = c.upload(DType::u8, {c.tokens, hidden}, codes.values),
                        ids = c.upload({c.tokens, c.top_k}, in.expert_idx),
                        flat = c.upload(DType::u8, {c.tokens, each}, scales.values),
                        pairs = c.upload(DType::u8, {c.tokens, each / 2, 2}, scales.values);
    args.x = x;
    args.expert_idx = ids;
    args.scale = c.coin() ? flat.view() : pairs.view();
    expect_outputs(c.device, args, exactly(outputs));
  });
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
      for (std::int64_t row = 0; row < smooth_rows; ++row)  // a power of two for each row keeps quotients exact
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
