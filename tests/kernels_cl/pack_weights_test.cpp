#include "tests/oracle/pack_weights.hpp"

#include <moecl/error.hpp>
#include <moecl/pack_weights.hpp>

#include <gmock/gmock.h>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class PackWeightsTest : public OnEveryDevice {
 protected:
  /// Memory for `experts` matrices, filled with NaN.
  struct Packed {
    Buffer buffer;
    PackedWeights weights;
    Packed(const TestDevice& device, DType dtype, std::int64_t experts, std::int64_t n, std::int64_t k)
        : buffer(*device.context, PackedWeights::size_bytes(dtype, experts, n, k)),
          weights{buffer.view(), dtype, experts, n, k} {
      enqueue_fill(device.stream, buffer.view(), 0x7fc17fc1);
    }
    std::vector<double> values(const TestDevice& device) const {
      std::vector<unsigned char> bytes(buffer.size_bytes());
      read_blocking(device.stream, buffer.view(), bytes.data(), bytes.size());
      return decode(weights.dtype, bytes);
    }
  };
};
MOECL_ON_EVERY_DEVICE(PackWeightsTest);

TEST_P(PackWeightsTest, PacksPanelsInEveryStorageTypeAndPadsWithZero) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      for (const auto& [n, k] : {std::pair{1, 1}, {63, 65}, {64, 64}, {130, 17}}) {
        SCOPED_TRACE(testing::Message() << name(from) << " to " << name(to) << ", [" << n << ", " << k << "]");
        const std::vector<double> values = normal(static_cast<std::size_t>(n * k), 1);
        const GuardedTensor source = upload(device(), from, {n, k}, values);
        const Packed packed(device(), to, 1, n, k);
        pack_weights::enqueue(device().stream, {source, packed.weights});
        EXPECT_EQ(packed.values(device()),
                  oracle::pack_weights(rounded(to, rounded(from, values)), static_cast<std::size_t>(k)));
      }
    }
  }
  const std::vector<double> values = {-128, 0, 127, 5, -1, 64};
  const GuardedTensor source = upload(device(), DType::i8, {3, 2}, values);
  const Packed packed(device(), DType::i8, 1, 3, 2);
  pack_weights::enqueue(device().stream, {source, packed.weights});
  EXPECT_EQ(packed.values(device()), oracle::pack_weights(values, 2));
}

TEST_P(PackWeightsTest, JoinsMatricesInsideAPanelOfOneExpert) {
  // Gate and up of expert 1 of 3: 33 + 33 columns; the neighbours stay as they are.
  const std::size_t k = 20, one = 2 * k * 64;
  const std::vector<double> gate = normal(33 * k, 1), up = normal(33 * k, 2);
  const GuardedTensor gate_rows = upload(device(), DType::f32, {33, 20}, gate),
                      up_rows = upload(device(), DType::f32, {33, 20}, up);
  const Packed packed(device(), DType::f32, 3, 66, 20);
  pack_weights::enqueue(device().stream, {gate_rows, packed.weights, 1, 0});
  pack_weights::enqueue(device().stream, {up_rows, packed.weights, 1, 33});
  std::vector<double> both = rounded(DType::f32, gate), second = rounded(DType::f32, up);
  both.insert(both.end(), second.begin(), second.end());
  const std::vector<double> got = packed.values(device());
  EXPECT_EQ(std::vector<double>(got.begin() + one, got.begin() + 2 * one), oracle::pack_weights(both, k));
  EXPECT_THAT(std::vector<double>(got.begin(), got.begin() + one), testing::Each(testing::IsNan()));
  EXPECT_THAT(std::vector<double>(got.begin() + 2 * one, got.end()), testing::Each(testing::IsNan()));
}

TEST_P(PackWeightsTest, PacksATransposedMatrix) {
  const std::int64_t n = 70, k = 33;
  const std::vector<double> stored = rounded(DType::f32, normal(static_cast<std::size_t>(n * k), 3));  // [K, N]
  const GuardedTensor memory = upload(device(), DType::f32, {k, n}, stored);
  TensorView source = memory;
  source.shape = {n, k}, source.stride = {1, n};
  const Packed packed(device(), DType::f32, 1, n, k);
  pack_weights::enqueue(device().stream, {source, packed.weights});
  std::vector<double> matrix;
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = 0; i < k; ++i) matrix.push_back(stored[static_cast<std::size_t>(i * n + row)]);
  EXPECT_EQ(packed.values(device()), oracle::pack_weights(matrix, static_cast<std::size_t>(k)));
}

TEST_P(PackWeightsTest, SaysWhyItRejects) {
  const GuardedTensor source(device(), DType::f32, {33, 20});
  const Packed packed(device(), DType::f32, 2, 40, 20);
  const auto reason = [&](auto change) {
    pack_weights::Args args{source, packed.weights};
    change(args);
    const std::string text = pack_weights::reject(args, device().caps());
    EXPECT_THROW(pack_weights::enqueue(device().stream, args), Error) << text;
    return text;
  };
  using Args = pack_weights::Args;
  using ::testing::HasSubstr;
  EXPECT_THAT(reason([](Args& args) { args.source.shape[1] = 19; }), HasSubstr("source: expected [rows, 20]"));
  EXPECT_THAT(reason([](Args& args) { args.source.dtype = DType::i8; }),
              HasSubstr("a type that converts to f32, got i8[33, 20]"));
  EXPECT_THAT(reason([](Args& args) { args.expert = 2; }), HasSubstr("expert: 2 is not in [0, 2)"));
  EXPECT_THAT(reason([](Args& args) { args.first_column = 8; }), HasSubstr("rows [8, 8 + 33) leave the 40 columns"));
  EXPECT_THAT(reason([](Args& args) { args.packed.experts = 3; }),
              HasSubstr("3 experts of [40, 20] f32 need 15360 bytes"));
  EXPECT_THAT(reason([](Args& args) { args.packed.dtype = DType::i32; }),
              HasSubstr("expected f32, f16, bf16 or i8, got i32"));
  EXPECT_THAT(reason([](Args& args) { args.packed.n = 0; }), HasSubstr("not all in [1, 2^31)"));
}

}  // namespace
}  // namespace moecl::test
