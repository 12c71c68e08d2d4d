#include "tests/oracle/pack_weights.hpp"

#include <moecl/error.hpp>
#include <moecl/pack_weights.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tests/cases/pack_weights.hpp"
#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class PackWeightsTest : public OnEveryDevice {
 protected:
  /// Compares without guards, because panels are aligned.
  void check(const PackWeightsCase& of) const {
    for (const Compared& packed : OperandsOf(device().stream, of).run())
      EXPECT_TRUE(packed.ok()) << of.describe() << ": " << packed.describe();
  }
  /// Memory for `experts` matrices, filled with NaN.
  struct Packed {
    Buffer buffer;
    PackedWeights weights;
    Packed(const TestDevice& device, DType dtype, std::int64_t experts, std::int64_t n, std::int64_t k)
        : buffer(*device.context, PackedWeights::size_bytes(code_type(dtype), experts, n, k)),
          weights{buffer.view(), code_type(dtype), experts, n, k} {
      enqueue_fill(device.stream, buffer.view(), 0x7fc17fc1);
    }
    std::vector<double> values(const TestDevice& device) const {
      std::vector<unsigned char> bytes(buffer.size_bytes());
      read_blocking(device.stream, buffer.view(), bytes.data(), bytes.size());
      return decode(*storage_dtype(weights.type), bytes);
    }
  };
};
MOECL_ON_EVERY_DEVICE(PackWeightsTest);

TEST_P(PackWeightsTest, PacksPanelsInEveryStorageTypeAndPadsWithZero) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      for (const auto& [n, k] : {std::pair{1, 1}, {63, 65}, {64, 64}, {130, 17}}) {
        check({n, k, from, to, normal(static_cast<std::size_t>(n * k), 1)});
      }
    }
  }
  check({3, 2, DType::i8, DType::i8, {-128, 0, 127, 5, -1, 64}});
}

TEST_P(PackWeightsTest, JoinsMatricesInsideAPanelOfOneExpert) {
  // Gate and up of expert 1 of 3 have 33 + 33 columns. The other experts stay as they are.
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

/// Random whole numbers of [-half, half).
std::vector<double> integers(std::size_t count, double half, std::uint64_t seed) {
  std::vector<double> values = normal(count, seed);
  for (double& value : values) value = std::clamp(std::round(value * half / 2), -half, half - 1);
  return values;
}

/// Words of eight int4 each, the first in the lowest bits.
std::vector<double> words_of(const std::vector<double>& codes) {
  std::vector<double> words;
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    std::uint32_t word = 0;
    for (unsigned j = 0; j < 8; ++j) word |= (static_cast<std::uint32_t>(codes[i + j]) & 15u) << (4 * j);
    words.push_back(static_cast<std::int32_t>(word));
  }
  return words;
}

/// How matrices of integers lie in memory: [E, K, N] as the operators take them, or [E, N, K].
struct IntegerSource {
  std::vector<double> codes;  ///< [E, N, K]
  GuardedTensor memory;
  TensorView view;  ///< [E, N, K], or words of int4
};

IntegerSource integer_source(const TestDevice& device, DType dtype, bool transposed, std::int64_t experts,
                             std::int64_t n, std::int64_t k) {
  const bool int4 = dtype == DType::i32;
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  std::vector<double> codes = integers(at(experts * n * k), int4 ? 8 : 128, 21), stored;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (std::int64_t i = 0; i < (transposed ? n : k); ++i)
      for (std::int64_t j = 0; j < (transposed ? k : n); ++j)
        stored.push_back(codes[at((expert * n + (transposed ? i : j)) * k + (transposed ? j : i))]);
  const std::int64_t rows = transposed ? n : k, columns = (transposed ? k : n) / (int4 ? 8 : 1);
  IntegerSource source{
      std::move(codes), upload(device, dtype, {experts, rows, columns}, int4 ? words_of(stored) : stored), {}};
  source.view = source.memory;
  if (!transposed) {
    std::swap(source.view.shape[1], source.view.shape[2]);
    std::swap(source.view.stride[1], source.view.stride[2]);
  }
  return source;
}

TEST_P(PackWeightsTest, DequantizesAllExpertsAtOnce) {
  const std::int64_t experts = 3;
  for (const DType from : {DType::i8, DType::i32}) {
    for (const bool transposed : {false, true}) {
      for (const auto& [n, k, groups] :
           {std::tuple{72, 48, 1}, {72, 48, 3}, {136, 1040, 65}, {8, 8, 8}, {24, 64, 16}}) {
        for (const bool with_offset : {false, true}) {
          const DType to = with_offset ? DType::f32 : DType::f16, vectors = with_offset ? DType::bf16 : DType::f32;
          SCOPED_TRACE(testing::Message() << name(from) << " to " << name(to) << ", [" << n << ", " << k << "], "
                                          << groups << " groups, " << (transposed ? "[N, K]" : "[K, N]"));
          const IntegerSource source = integer_source(device(), from, transposed, experts, n, k);
          const auto channels = static_cast<std::size_t>(experts * groups * n);
          const std::vector<double> scale = rounded(vectors, normal(channels, 22)),
                                    offset = rounded(vectors, normal(channels, 23));
          // A scale of 64 bits holds two floats. The first one counts, the second is NaN.
          std::vector<double> halves(2 * channels, std::nan(""));
          for (std::size_t i = 0; i < channels; ++i) halves[2 * i] = scale[i];
          const DeviceTensor packed_scale(device().stream, DType::f32, {experts, groups, 2 * n}, halves);
          const GuardedTensor plain_scale = upload(device(), vectors, {experts, groups, n}, scale),
                              device_offset = upload(device(), vectors, {experts, groups, n}, offset);
          const Packed packed(device(), to, experts, n, k);
          pack_weights::Args args{source.view, packed.weights};
          args.scale = plain_scale;
          if (!with_offset) args.scale = TensorView(packed_scale.buffer.view(), DType::i64, {experts, groups, n});
          if (with_offset) args.offset = device_offset;
          pack_weights::enqueue(device().stream, args);
          std::vector<double> expected;
          for (std::int64_t expert = 0; expert < experts; ++expert) {
            std::vector<double> matrix;
            for (std::int64_t row = 0; row < n; ++row)
              for (std::int64_t i = 0; i < k; ++i) {
                const auto channel = static_cast<std::size_t>((expert * groups + i / (k / groups)) * n + row);
                const auto code =
                    static_cast<float>(source.codes[static_cast<std::size_t>((expert * n + row) * k + i)]);
                // Each step rounds to f32.
                const float value = (with_offset ? code + static_cast<float>(offset[channel]) : code);
                matrix.push_back(value * static_cast<float>(scale[channel]));
              }
            const std::vector<double> panels = oracle::pack_weights(rounded(to, matrix), static_cast<std::size_t>(k));
            expected.insert(expected.end(), panels.begin(), panels.end());
          }
          EXPECT_EQ(packed.values(device()), expected);
        }
      }
    }
  }
}

TEST_P(PackWeightsTest, UnpacksInt4ToInt8BesideOtherColumns) {
  // Experts 1 and 2 of 4, columns [24, 104) of 104.
  const std::int64_t n = 80, k = 40;
  for (const bool transposed : {false, true}) {
    const IntegerSource source = integer_source(device(), DType::i32, transposed, 2, n, k);
    const Packed packed(device(), DType::i8, 4, 24 + n, k);
    pack_weights::enqueue(device().stream, {source.view, packed.weights, 1, 24});
    const std::vector<double> got = packed.values(device());
    const std::vector<double> before = decode(DType::i8, std::vector<unsigned char>{0xc1, 0x7f});
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t lane = i % 64, at_k = i / 64 % 40, column = i / 64 / 40 % 2 * 64 + lane,
                        expert = i / 64 / 40 / 2;
      const bool filled = expert >= 1 && expert <= 2 && column >= 24;
      const double expected = !filled         ? before[i % 2]
                              : column >= 104 ? 0
                                              : source.codes[((expert - 1) * 80 + column - 24) * 40 + at_k];
      ASSERT_EQ(got[i], expected) << "expert " << expert << ", column " << column << ", k " << at_k;
    }
  }
}

TEST_P(PackWeightsTest, SaysWhyItRejects) {
  const GuardedTensor source(device(), DType::f32, {33, 20});
  const Packed packed(device(), DType::f32, 2, 40, 20);
  const auto reason = [&](auto change) {
    pack_weights::Args args{source, packed.weights};
    change(args);
    const std::string text = pack_weights::reject(args, device().record());
    EXPECT_THROW(pack_weights::enqueue(device().stream, args), Error) << text;
    return text;
  };
  using Args = pack_weights::Args;
  using ::testing::HasSubstr;
  EXPECT_THAT(reason([](Args& args) { args.source.shape[1] = 19; }), HasSubstr("source: expected [rows, 20]"));
  EXPECT_THAT(reason([](Args& args) { args.packed.type = CodeType::i8; }),
              HasSubstr("a type that converts to i8, got f32[33, 20]"));
  EXPECT_THAT(reason([](Args& args) { args.expert = 2; }), HasSubstr("expert: [2, 2 + 1) is not in [0, 2)"));
  EXPECT_THAT(reason([](Args& args) { args.first_column = 8; }), HasSubstr("rows [8, 8 + 33) leave the 40 columns"));
  EXPECT_THAT(reason([](Args& args) { args.packed.experts = 3; }),
              HasSubstr("3 experts of [40, 20] f32 need 15360 bytes"));
  EXPECT_THAT(reason([](Args& args) { args.scale = args.source; }),
              HasSubstr("scale, offset: expected for integers that become floats"));
  const auto int4 = [&](auto change) {
    return reason([&](Args& args) {
      args.source.dtype = DType::i32;
      args.source.shape = {4, 20}, args.source.stride = {1, 4};
      change(args);
    });
  };
  EXPECT_THAT(int4([](Args& args) { args.source.stride[0] = 2; }), HasSubstr("must be neighbours along rows or K"));
  EXPECT_THAT(int4([](Args& args) { args.first_column = 4; }), HasSubstr("first_column: 4 is no multiple of 8"));
  EXPECT_THAT(int4([](Args& args) { args.first_column = 16; }), HasSubstr("rows [16, 16 + 32) leave the 40 columns"));
  const GuardedTensor scale(device(), DType::f32, {1, 3, 32}), offset(device(), DType::f32, {1, 2, 32});
  EXPECT_THAT(int4([&](Args& args) { args.scale = scale; }),
              HasSubstr("scale: expected a float type and [1, G, 32] with G a divisor of 20, got f32[1, 3, 32]"));
  EXPECT_THAT(int4([&](Args& args) { args.offset = offset; }), HasSubstr("offset with scale"));
  EXPECT_THAT(reason([](Args& args) { args.packed.type = CodeType::f4_e2m1; }),
              HasSubstr("packed: expected f32, f16, bf16 or i8 without scales, got f4_e2m1"));
  EXPECT_THAT(reason([](Args& args) { args.packed.n = 0; }), HasSubstr("not all in [1, 2^31)"));
}

}  // namespace
}  // namespace moecl::test
