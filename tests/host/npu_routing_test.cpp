#include "host/npu/describe_routing.hpp"
#include "tests/host/npu_routing_case.hpp"

namespace moecl::test {
namespace {

class NpuRoutingTest : public RoutingProperty {};
MOECL_ON_EVERY_DEVICE(NpuRoutingTest);

TEST_P(NpuRoutingTest, TokenPermuteAgreesWithTheOracle) {
  for_each_case([&](RoutingCase& c) {
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
  for_each_case([&](RoutingCase& c) {
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
      probs[slot] = 0;  // the row of this slot is not read
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
  for_each_case([&](RoutingCase& c) {
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
  for_each_case([&](RoutingCase& c) {
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
  for_each_case([&](RoutingCase& c) {
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
