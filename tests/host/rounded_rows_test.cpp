// Rows that only a sum reads: if many, they leave tensor cores as bf16; the sum stays within half a bf16 step.
#include <moecl/moe_layer.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cases/device_memory.hpp"
#include "tests/devices.hpp"
#include "tests/host/layer_forms.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

struct ManyRows {
  std::int64_t tokens = 48, hidden = 256, inter = 512, experts = 4, top_k = 2;
};
constexpr ManyRows many;

MoeShape many_rows() {
  MoeShape shape;
  shape.hidden = many.hidden, shape.intermediate = many.inter, shape.experts = many.experts;
  shape.router.top_k = many.top_k;
  return shape;
}

/// y = x W^T, with the matrix of one expert.
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& all, std::int64_t expert,
                            std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(x.size());
  std::vector<double> y(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      y[static_cast<std::size_t>(r)] +=
          x[static_cast<std::size_t>(c)] * all[static_cast<std::size_t>((expert * rows + r) * columns + c)];
  return y;
}

class RoundedRowsTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(RoundedRowsTest);

TEST_P(RoundedRowsTest, ManyRowsAreBf16WithinItsHalfStep) {
  const TestDevice& on = device();
  const RandomLayer random(many_rows(), true, DType::bf16);
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  const MoeLayer layer(on.stream, random.shape, random.weights(), options);
  const std::vector<double> given = normal(many.tokens * many.hidden, 11);
  const GuardedTensor x = upload(on, DType::bf16, {many.tokens, many.hidden}, given),
                      out(on, DType::f32, {many.tokens, many.hidden}),
                      rows(on, DType::f32, {many.tokens * many.top_k, many.hidden}),
                      ids(on, DType::i32, {many.tokens, many.top_k}),
                      weights(on, DType::f32, {many.tokens, many.top_k});
  const Buffer workspace(*on.context, layer.workspace_bytes(many.tokens));
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.expert_rows = rows;
  args.topk_ids = ids;
  args.topk_weights = weights;
  args.workspace = workspace.view();
  layer.forward(on.stream, args);

  const std::vector<double> gate = decode(DType::bf16, random.gate), up = decode(DType::bf16, random.up),
                            down = decode(DType::bf16, random.down), input = x.values(), chosen = ids.values(),
                            share = weights.values();
  std::vector<double> expected(static_cast<std::size_t>(many.tokens * many.hidden));
  for (std::int64_t token = 0; token < many.tokens; ++token) {
    const std::vector<double> of_token(input.begin() + token * many.hidden, input.begin() + (token + 1) * many.hidden);
    for (std::int64_t slot = token * many.top_k; slot < (token + 1) * many.top_k; ++slot) {
      const auto expert = static_cast<std::int64_t>(chosen[static_cast<std::size_t>(slot)]);
      std::vector<double> inner = product(of_token, gate, expert, many.inter);
      const std::vector<double> other = product(of_token, up, expert, many.inter);
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= other[i] / (1 + std::exp(-inner[i]));
      const std::vector<double> row = product(inner, down, expert, many.hidden);
      for (std::int64_t c = 0; c < many.hidden; ++c)
        expected[static_cast<std::size_t>(token * many.hidden + c)] +=
            share[static_cast<std::size_t>(slot)] * row[static_cast<std::size_t>(c)];
    }
  }
  EXPECT_LE(relative_error(out.values(), expected), bf16_tolerance(on.caps()));

  const bool exceed_cache =
      4 * on.caps().cache_bytes < static_cast<std::uint64_t>(many.tokens * many.top_k * many.hidden) * 4;
  const bool rounds = on.caps().type == DeviceType::gpu && row_rounding(DType::bf16, on.caps()) > 0 && exceed_cache;
  const std::vector<double> got = rows.values();
  EXPECT_EQ(rounded(DType::bf16, got) == got, rounds);
  if (on.caps().platform_name == "NVIDIA, simulated") {
    EXPECT_TRUE(rounds);  // else this test rounds nothing
  }
}

}  // namespace
}  // namespace moecl::test
