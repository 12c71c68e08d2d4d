#include "tests/oracle/npu_routing.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "host/npu/describe_routing.hpp"
#include "tests/host/npu_property.hpp"

namespace moecl::test {
namespace {

using oracle::Ints;
using oracle::Matrix;
const std::vector<DType> floats = {DType::f32, DType::f16, DType::bf16},
                         movable = {DType::f32, DType::f16, DType::bf16, DType::i8};

/// One random case: sizes, values that every dtype holds exactly, and what is on the device.
struct Case {
  const TestDevice& device;
  std::mt19937_64 engine;
  std::int64_t tokens, top_k, hidden;

  Case(const TestDevice& on, int number)
      : device(on),
        engine(static_cast<std::uint64_t>(number)),
        tokens(number % 50 == 0 ? 700 : pick(0, 12)),
        top_k(pick(1, 5)),
        hidden(pick(1, 40)) {}

  std::int64_t slots() const { return tokens * top_k; }
  std::int64_t pick(std::int64_t least, std::int64_t most) { return between(engine, least, most); }
  bool coin() { return pick(0, 1) == 1; }

  Matrix matrix(std::int64_t rows) {
    Matrix values{std::vector<double>(static_cast<std::size_t>(rows * hidden)), static_cast<std::size_t>(hidden)};
    for (double& value : values.values) value = static_cast<double>(pick(-127, 127));
    return values;
  }
  Ints ints(std::int64_t count, std::int64_t least, std::int64_t most) {
    Ints values(static_cast<std::size_t>(count));
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(pick(least, most));
    return values;
  }
  /// 0 to count - 1 in some order.
  Ints permutation(std::int64_t count) {
    Ints values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    std::shuffle(values.begin(), values.end(), engine);
    return values;
  }
  GuardedTensor upload(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<double>& values) {
    return test::upload(device, dtype, shape, values);
  }
  GuardedTensor upload(std::initializer_list<std::int64_t> shape, const Ints& values) {
    return {device, DType::i32, shape, values};
  }
};

std::vector<Expected> exactly(const std::vector<oracle::Tensor>& outputs) {
  std::vector<Expected> expected;
  for (const oracle::Tensor& output : outputs) expected.push_back({output.values, output.defined, 0, 0});
  return expected;
}

class NpuRoutingTest : public OnEveryDevice {
 protected:
  template <class Body>
  void for_each_case(Body body) {
    for (int i = 0; i < property_cases; ++i) {
      Case c(device(), i);
      SCOPED_TRACE(testing::Message() << "case " << i << ": N = " << c.tokens << ", K = " << c.top_k
                                      << ", H = " << c.hidden);
      body(c);
      if (HasFatalFailure()) return;
    }
  }
};
MOECL_ON_EVERY_DEVICE(NpuRoutingTest);

TEST_P(NpuRoutingTest, InitRoutingAgreesWithTheOracle) {
  for_each_case([&](Case& c) {
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

TEST_P(NpuRoutingTest, ComputeExpertTokensAgreesWithTheOracle) {
  for_each_case([&](Case& c) {
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
Matrix rows_with_ties(Case& c) {
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

TEST_P(NpuRoutingTest, InitRoutingV2AgreesWithTheOracle) {
  for_each_case([&](Case& c) {
    npu::MoeInitRoutingV2Args args;
    oracle::InitRoutingV2 in;
    args.quant_mode = in.quant_mode = c.pick(-1, 1);
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
    in.x = in.quant_mode == 1 ? rows_with_ties(c) : c.matrix(c.tokens);
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

TEST_P(NpuRoutingTest, TokenPermuteAgreesWithTheOracle) {
  for_each_case([&](Case& c) {
    const DType dtype = one_of(c.engine, movable);
    const bool flat = c.pick(0, 4) == 0;
    if (flat) c.top_k = 1;
    const Matrix tokens = c.matrix(c.tokens);
    const Ints indices = c.ints(c.slots(), 0, c.coin() ? 7 : (1 << 24) - 1);
    const std::vector<double> values(indices.begin(), indices.end());
    const DType index_dtype = c.coin() ? DType::i32 : DType::i64;
    const GuardedTensor device_tokens = c.upload(dtype, {c.tokens, c.hidden}, tokens.values);
    const GuardedTensor device_indices =
        flat ? c.upload(index_dtype, {c.tokens}, values) : c.upload(index_dtype, {c.tokens, c.top_k}, values);
    npu::MoeTokenPermuteArgs args;
    args.tokens = device_tokens;
    args.indices = device_indices;
    std::int64_t rows = c.slots();
    if (c.coin()) {
      const std::int64_t asked = c.pick(-c.slots() - 2, c.slots() + 2);
      args.num_out_tokens = asked;
      rows = asked > 0 ? std::min(asked, rows) : std::max<std::int64_t>(rows + asked, 0);
    }
    expect_outputs(c.device, args, exactly(oracle::moe_token_permute(tokens, indices, rows)));
  });
}

TEST_P(NpuRoutingTest, TokenUnpermuteAgreesWithTheOracleToTheBit) {
  for_each_case([&](Case& c) {
    const bool weighted = c.pick(0, 4) != 0;
    if (!weighted) c.top_k = 1;
    // f32 probabilities with every dtype, others with one: each pair is a program.
    const DType dtype = one_of(c.engine, floats),
                probs_dtype = dtype == DType::bf16 ? one_of(c.engine, floats) : DType::f32;
    const std::int64_t row_count = std::max<std::int64_t>(c.slots() - c.pick(0, 3), 0);
    Matrix rows{rounded(dtype, normal(static_cast<std::size_t>(row_count * c.hidden), c.engine())),
                static_cast<std::size_t>(c.hidden)};
    Ints indices = c.permutation(c.slots());
    std::vector<double> probs;
    if (weighted) probs = rounded(probs_dtype, normal(static_cast<std::size_t>(c.slots()), c.engine()));
    for (std::size_t slot = 0; slot < indices.size(); ++slot) {
      if (c.pick(0, 7) == 0) indices[slot] = -static_cast<std::int32_t>(c.pick(1, 3));
      if (!weighted || c.pick(0, 5) != 0) continue;
      probs[slot] = 0;  // the row behind it is not read
      const std::int32_t row = indices[slot];
      if (row >= 0 && row < row_count) rows.values[static_cast<std::size_t>(row * c.hidden)] = std::nan("");
    }
    const GuardedTensor device_rows = c.upload(dtype, {row_count, c.hidden}, rows.values),
                        device_indices = c.upload({c.slots()}, indices),
                        device_probs = c.upload(probs_dtype, {weighted ? c.tokens : 0, c.top_k}, probs);
    npu::MoeTokenUnpermuteArgs args;
    args.permuted_tokens = device_rows;
    args.sorted_indices = device_indices;
    if (weighted) args.probs = device_probs;
    expect_outputs(
        c.device, args,
        {{rounded(dtype, oracle::moe_token_unpermute(rows, indices, probs, static_cast<std::size_t>(c.top_k))), {}}});
  });
}

TEST_P(NpuRoutingTest, PaddedUnpermuteAgreesWithTheOracleToTheBit) {
  for_each_case([&](Case& c) {
    const DType dtype = one_of(c.engine, floats);
    const std::int64_t tokens = c.tokens + 1, row_count = c.slots();
    const Matrix rows{rounded(dtype, normal(static_cast<std::size_t>(row_count * c.hidden), c.engine())),
                      static_cast<std::size_t>(c.hidden)};
    const Ints to = c.ints(row_count, 0, tokens - 1);
    std::vector<double> probs;
    if (c.coin()) probs = rounded(DType::f32, normal(static_cast<std::size_t>(row_count), c.engine()));
    const GuardedTensor device_rows = c.upload(dtype, {row_count, c.hidden}, rows.values),
                        device_to = c.upload({row_count}, to),
                        device_probs = c.upload(DType::f32, {static_cast<std::int64_t>(probs.size())}, probs);
    npu::MoeTokenUnpermuteArgs args;
    args.permuted_tokens = device_rows;
    args.sorted_indices = device_to;
    if (!probs.empty()) args.probs = device_probs;
    args.padded_mode = true;
    args.restore_shape = {tokens, c.hidden};
    expect_outputs(
        c.device, args,
        {{rounded(dtype, oracle::moe_token_unpermute_padded(rows, to, probs, static_cast<std::size_t>(tokens))), {}}});
  });
}

TEST_P(NpuRoutingTest, ReRoutingAgreesWithTheOracle) {
  for_each_case([&](Case& c) {
    const DType dtype = one_of(c.engine, movable), count_dtype = c.coin() ? DType::i32 : DType::i64;
    const std::int64_t ranks = c.pick(1, 5), experts = c.pick(1, 6);
    const Ints counts = c.ints(ranks * experts, 0, c.pick(0, 5));
    const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Matrix tokens = c.matrix(rows);
    std::vector<double> scales;
    if (c.coin()) scales = rounded(DType::f32, normal(static_cast<std::size_t>(rows), c.engine()));
    const GuardedTensor device_tokens = c.upload(dtype, {rows, c.hidden}, tokens.values),
                        device_counts = c.upload(count_dtype, {ranks, experts}, {counts.begin(), counts.end()}),
                        device_scales = c.upload(DType::f32, {static_cast<std::int64_t>(scales.size())}, scales);
    npu::MoeReRoutingArgs args;
    args.tokens = device_tokens;
    args.expert_token_num_per_rank = device_counts;
    if (!scales.empty()) args.per_token_scales = device_scales;
    expect_outputs(c.device, args,
                   exactly(oracle::moe_re_routing(tokens, scales, counts, static_cast<std::size_t>(experts))));
  });
}

TEST_P(NpuRoutingTest, FinalizeRoutingAgreesWithTheOracle) {
  for_each_case([&](Case& c) {
    npu::MoeFinalizeRoutingArgs args;
    oracle::FinalizeRouting in;
    const DType dtype = one_of(c.engine, floats);
    const auto values = [&](std::int64_t rows) {
      return rounded(dtype, normal(static_cast<std::size_t>(rows * c.hidden), c.engine()));
    };
    const bool weighted = c.pick(0, 4) != 0;
    if (!weighted) c.top_k = 1;
    args.drop_pad_mode = c.pick(0, 3);
    const bool drops = args.drop_pad_mode % 2 == 1;
    const std::int64_t experts = c.pick(1, 5), capacity = c.pick(1, 4);
    const std::int64_t row_count = drops ? experts * capacity : std::max<std::int64_t>(c.slots(), 1);
    in.rows = {values(row_count), static_cast<std::size_t>(c.hidden)};
    in.tokens = static_cast<std::size_t>(c.tokens);
    in.top_k = static_cast<std::size_t>(c.top_k);
    in.columns = args.drop_pad_mode < 2;
    in.row_of_slot = c.ints(c.slots(), drops ? -1 : 0, row_count - 1);
    in.experts = c.ints(c.slots(), 0, experts - 1);
    if (weighted) in.scales = rounded(dtype, normal(static_cast<std::size_t>(c.slots()), c.engine()));
    if (c.coin()) in.bias = values(experts);
    if (c.coin()) in.skip1 = values(c.tokens);
    if (!in.skip1.empty() && c.coin()) in.skip2 = values(c.tokens);
    const GuardedTensor rows = drops ? c.upload(dtype, {experts, capacity, c.hidden}, in.rows.values)
                                     : c.upload(dtype, {row_count, c.hidden}, in.rows.values);
    const GuardedTensor index = c.upload({c.slots()}, in.row_of_slot), ids = c.upload({c.tokens, c.top_k}, in.experts),
                        scales = c.upload(dtype, {weighted ? c.tokens : 0, c.top_k}, in.scales),
                        bias = c.upload(dtype, {in.bias.empty() ? 0 : experts, c.hidden}, in.bias),
                        skip1 = c.upload(dtype, {in.skip1.empty() ? 0 : c.tokens, c.hidden}, in.skip1),
                        skip2 = c.upload(dtype, {in.skip2.empty() ? 0 : c.tokens, c.hidden}, in.skip2);
    args.expanded_permuted_rows = rows;
    args.expanded_src_to_dst_row = index;
    args.export_for_source_row = ids;
    if (weighted) args.scales = scales;
    if (!in.bias.empty()) args.bias = bias;
    if (!in.skip1.empty()) args.skip1 = skip1;
    if (!in.skip2.empty()) args.skip2 = skip2;
    // Rounding errors of a handful of f32 sums of numbers of size one, then half a step of the storage type.
    const double storage = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0;
    expect_outputs(c.device, args, {{oracle::moe_finalize_routing(in), {}, 1e-5, storage * 1.01}});
  });
}

}  // namespace
}  // namespace moecl::test
