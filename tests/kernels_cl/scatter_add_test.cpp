#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/scatter_add.hpp>

#include <gmock/gmock.h>

#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

class ScatterAddTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(ScatterAddTest);

/// f32 sums in the order of the rows; each product and each sum is rounded. The operator promises these bits.
std::vector<float> expected_sums(const std::vector<double>& rows, const Ints& destinations,
                                 const std::vector<double>& weights, std::size_t valid_rows, std::size_t tokens) {
  const std::size_t hidden = rows.size() / destinations.size();
  std::vector<float> out(tokens * hidden);
  for (std::size_t row = 0; row < valid_rows; ++row) {
    if (destinations[row] < 0 || static_cast<std::size_t>(destinations[row]) >= tokens) continue;
    for (std::size_t h = 0; h < hidden; ++h) {
      const volatile float product = static_cast<float>(weights[row]) * static_cast<float>(rows[row * hidden + h]);
      out[static_cast<std::size_t>(destinations[row]) * hidden + h] += product;
    }
  }
  return out;
}

TEST_P(ScatterAddTest, SumsRowsInTheirOrderToTheBit) {
  std::mt19937_64 engine(1);
  for (const std::int64_t tokens : {1, 7, 5000})
    for (const DType dtype : {DType::i32, DType::i64})
      for (const std::int32_t lanes : lane_choices) {
        const std::size_t row_count = 1 + engine() % 300, hidden = 1 + engine() % 40,
                          valid = engine() % (row_count + 1);
        SCOPED_TRACE(testing::Message() << row_count << " rows to T = " << tokens << ", lanes = " << lanes);
        const auto r = static_cast<std::int64_t>(row_count), h = static_cast<std::int64_t>(hidden);
        const std::vector<double> rows = rounded(DType::f32, normal(row_count * hidden, engine())),
                                  weights = rounded(DType::f32, normal(row_count, engine()));
        Ints destinations(row_count);
        for (std::int32_t& t : destinations)
          t = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(tokens));
        for (std::size_t row = valid; row < row_count; ++row) destinations[row] = 0x5a5a5a5a;
        const GuardedTensor device_rows = upload(device(), DType::f32, {r, h}, rows),
                            device_weights = upload(device(), DType::f32, {r}, weights),
                            to = upload(device(), dtype, {r}, {destinations.begin(), destinations.end()});
        const GuardedTensor row_ends(device(), DType::i32, {2}, Ints{0, static_cast<std::int32_t>(valid)}),
            fault(device(), DType::i32, {4}, Ints(4)), out(device(), DType::f32, {tokens, h});
        const Buffer scratch(*device().context, scatter_add::scratch_bytes(r, tokens, device().caps()));
        scatter_add::enqueue(device().stream,
                             {device_rows, to, row_ends, device_weights, {}, 1, 0, out, fault, scratch.view()},
                             {lanes});
        EXPECT_EQ(out.read<float>(),
                  expected_sums(rows, destinations, weights, valid, static_cast<std::size_t>(tokens)));
        EXPECT_EQ(fault.read<std::int32_t>(), Ints(4));
      }
}

TEST_P(ScatterAddTest, SharedRowsOfSomeTokens) {
  const GuardedTensor rows = upload(device(), DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6}),
                      to = upload(device(), DType::i64, {3}, {2, 0, 2}),
                      shared = upload(device(), DType::bf16, {2, 2}, {10, 20, 30, 40}),
                      out(device(), DType::f32, {4, 2});
  const Buffer scratch(*device().context, scatter_add::scratch_bytes(3, 4, device().caps()));
  for (const std::int32_t lanes : lane_choices) {
    scatter_add::enqueue(device().stream, {rows, to, {}, {}, shared, 0.5F, 1, out, {}, scratch.view()}, {lanes});
    EXPECT_EQ(out.values(), (std::vector<double>{3, 4, 5, 10, 21, 28, 0, 0}));
  }
}

TEST_P(ScatterAddTest, ADestinationThatDoesNotExistIsReportedAndLeftOut) {
  const GuardedTensor rows = upload(device(), DType::f32, {3, 1}, {1, 2, 4}),
                      to = upload(device(), DType::i32, {3}, {1, 2, 1}), out(device(), DType::f32, {2, 1}),
                      fault(device(), DType::i32, {4}, Ints(4));
  const Buffer scratch(*device().context, scatter_add::scratch_bytes(3, 2, device().caps()));
  scatter_add::enqueue(device().stream, {rows, to, {}, {}, {}, 1, 0, out, fault, scratch.view()});
  EXPECT_EQ(out.values(), (std::vector<double>{0, 5}));
  EXPECT_EQ(fault.read<std::int32_t>(), (Ints{static_cast<std::int32_t>(FaultCode::index_out_of_range), 1, 2, 0}));
}

TEST_P(ScatterAddTest, RejectsWrongShapes) {
  const GuardedTensor rows(device(), DType::f32, {3, 5}), to(device(), DType::i64, {3}), two(device(), DType::i64, {2}),
      out(device(), DType::f32, {4, 5}), narrow(device(), DType::f32, {4, 2}), weights(device(), DType::f32, {3}),
      ids(device(), DType::f32, {3});
  const Buffer scratch(*device().context, scatter_add::scratch_bytes(3, 4, device().caps()));
  const auto reason = [&](const scatter_add::Args& args) { return scatter_add::reject(args, {}, device().record()); };
  EXPECT_EQ(reason({rows, to, {}, weights, {}, 1, 0, out, {}, scratch.view()}), "");
  EXPECT_THAT(reason({rows, two, {}, {}, {}, 1, 0, out, {}, scratch.view()}), testing::HasSubstr("got i64[2]"));
  EXPECT_THAT(reason({rows, ids, {}, {}, {}, 1, 0, out, {}, scratch.view()}), testing::HasSubstr("got f32[3]"));
  EXPECT_THAT(reason({rows, to, {}, out, {}, 1, 0, out, {}, scratch.view()}), testing::HasSubstr("expected float [3]"));
  EXPECT_THAT(reason({rows, to, {}, {}, {}, 1, 0, narrow, {}, scratch.view()}), testing::HasSubstr("float [R, 2]"));
  EXPECT_THAT(reason({rows, to, {}, {}, out, 1, 1, out, {}, scratch.view()}), testing::HasSubstr("float [3, 5], got"));
  EXPECT_THAT(reason({rows, to, {}, {}, {}, 1, 0, out, {}, {}}), testing::HasSubstr("bytes are needed, got 0"));
  EXPECT_THROW(scatter_add::enqueue(device().stream, {rows, two, {}, {}, {}, 1, 0, out, {}, scratch.view()}), Error);
}

}  // namespace
}  // namespace moecl::test
