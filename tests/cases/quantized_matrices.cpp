#include "tests/cases/quantized_matrices.hpp"

#include <moecl/bf16.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp6.hpp>
#include <moecl/fp8.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "runtime/check.hpp"
#include "tests/cases/grouped_gemm.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

/// Writes element (n, k) into a plain little-endian bit stream of units.
void put_code(std::vector<unsigned char>& bytes, const CodeLayout& layout, std::int64_t n, std::int64_t k, int code) {
  static constexpr int awq[] = {0, 4, 1, 5, 2, 6, 3, 7};
  const std::int64_t i = layout.packed_along_rows ? n : k, unit_of_i = i / layout.unit_codes;
  const std::int64_t unit = layout.packed_along_rows ? unit_of_i * layout.row_stride + k * layout.column_stride
                                                     : n * layout.row_stride + unit_of_i * layout.column_stride;
  auto position = static_cast<int>(i % layout.unit_codes);
  if (layout.interleaved) position = awq[position];
  for (int bit = 0; bit < bits(layout.type); ++bit) {
    const int at = position * bits(layout.type) + bit;
    const auto byte = static_cast<std::size_t>(unit * layout.unit_bytes + at / 8);
    bytes.at(byte) = static_cast<unsigned char>(bytes.at(byte) | ((code >> bit & 1) << (at % 8)));
  }
}

CodeLayout layout_of(CodeType type, CodePlacing placing, std::int64_t n, std::int64_t k) {
  CodeLayout layout;
  layout.type = type, layout.rows = n, layout.columns = k;
  const auto units = [&](std::int64_t extent) { return (extent + layout.unit_codes - 1) / layout.unit_codes; };
  switch (placing) {
    case CodePlacing::along_k:
      layout.unit_bytes = bits(type) == 6 ? 3 : 1, layout.unit_codes = layout.unit_bytes * 8 / bits(type);
      layout.row_stride = units(k);
      break;
    case CodePlacing::words_k:
      layout.unit_bytes = 4, layout.unit_codes = 8;
      layout.row_stride = 1, layout.column_stride = n;
      break;
    case CodePlacing::words_n_awq:
      layout.unit_bytes = 4, layout.unit_codes = 8, layout.packed_along_rows = layout.interleaved = true;
      layout.row_stride = 1, layout.column_stride = units(n);
  }
  return layout;
}

std::size_t stored_bytes(const CodeLayout& layout) {
  return static_cast<std::size_t>(layout.end_unit() * layout.unit_bytes);
}

/// Signed integers are in two's complement; u4 and u8 count from 0.
double integer_value(CodeType type, int code) {
  const int sign = type == CodeType::i4 ? 8 : type == CodeType::i8 ? 128 : 0;
  return (code ^ sign) - sign;
}

/// A random scale: from 2^-5 to below 2^-2, or for e8m0 a power of two from 2^-7 to 1.
std::vector<unsigned char> random_scale(DType type, std::mt19937_64& engine) {
  const double value = std::ldexp(1.0 + static_cast<double>(engine() % 128) / 128, -5 + static_cast<int>(engine() % 3));
  if (type == DType::u8) return {static_cast<unsigned char>(120 + engine() % 8)};
  if (type == DType::f8_e4m3) return {fp8_e4m3fn.encode(static_cast<float>(value))};
  return encode(type, {value});
}

Buffer upload(StreamView stream, const std::vector<unsigned char>& bytes) {
  Buffer buffer(*stream.context, bytes.size());
  if (!bytes.empty()) write_blocking(stream, buffer.view(), bytes.data(), bytes.size());
  return buffer;
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

double code_value(CodeType type, int code) {
  const auto byte = static_cast<std::uint8_t>(code);
  switch (type) {
    case CodeType::f8_e4m3:
      return fp8_e4m3fn.decode(byte);
    case CodeType::f8_e5m2:
      return fp8_e5m2.decode(byte);
    case CodeType::f6_e2m3:
      return fp6_e2m3.decode(byte);
    case CodeType::f6_e3m2:
      return fp6_e3m2.decode(byte);
    case CodeType::f4_e2m1:
      return fp4_e2m1.decode(byte);
    default:
      return integer_value(type, code);
  }
}

double scale_value(DType type, const unsigned char* at) {
  if (type == DType::u8) return e8m0_to_f32(*at);
  if (type == DType::f8_e4m3) return fp8_e4m3fn.decode(*at);
  return decode(type, std::vector<unsigned char>(at, at + size_bytes(type))).front();
}

std::string QuantizedCase::describe() const {
  return fmt::format("{}{}{}{}{}{}{}", name(type),
                     scale ? fmt::format(", {} scales", *scale == DType::u8 ? "e8m0" : name(*scale)) : "",
                     !scale      ? ""
                     : group > 0 ? fmt::format(" of {} x {}", group_rows, group)
                                 : " by index",
                     zero ? ", zero points" : "", placing == CodePlacing::words_k ? ", words along K" : "",
                     placing == CodePlacing::words_n_awq ? ", interleaved words along N" : "",
                     layout == PanelLayout::n_major ? "" : fmt::format(", {}", name(layout)));
}

QuantizedMatrix::QuantizedMatrix(const QuantizedCase& kind, std::int64_t n, std::int64_t k, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  static_cast<CodeLayout&>(weights.codes) = layout_of(kind.type, kind.placing, n, k);
  codes.resize(stored_bytes(weights.codes));
  const std::int64_t groups = !kind.scale      ? 1
                              : kind.group > 0 ? (k + kind.group - 1) / kind.group
                                               : kind.groups,
                     row_groups = (n + kind.group_rows - 1) / kind.group_rows;
  std::vector<double> scale(index(row_groups * groups), 1), zero(scale.size(), implicit_zero(kind.type));
  if (kind.scale) {
    for (double& value : scale) {
      const std::vector<unsigned char> bytes = random_scale(*kind.scale, engine);
      value = scale_value(*kind.scale, bytes.data());
      scales.insert(scales.end(), bytes.begin(), bytes.end());
    }
    weights.scale = {scales.data(), *kind.scale, row_groups, groups};
    weights.group = {kind.group_rows, kind.group > 0 ? kind.group : (k + groups - 1) / groups};
    for (std::int64_t i = 0; kind.group == 0 && i < k; ++i)
      weights.group_index.push_back(static_cast<std::int32_t>(engine() % index(groups)));
  }
  if (kind.zero) {
    // As GPTQ and AWQ pack them: along N.
    CodeLayout& layout = weights.zero;
    layout = layout_of(kind.type, CodePlacing::along_k, row_groups, groups);
    if (bits(kind.type) == 4) {
      layout = layout_of(kind.type, CodePlacing::words_n_awq, row_groups, groups);
      layout.interleaved = kind.placing == CodePlacing::words_n_awq;
    }
    zeros.resize(stored_bytes(layout));
    for (std::int64_t row = 0; row < row_groups; ++row)
      for (std::int64_t g = 0; g < groups; ++g) {
        const int code = static_cast<int>(engine() % (1U << static_cast<unsigned>(bits(kind.type))));
        put_code(zeros, layout, row, g, code);
        zero[index(row * groups + g)] = integer_value(kind.type, code) + kind.zero_add;
      }
    weights.zero.data = zeros.data(), weights.zero_add = kind.zero_add;
  }
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = 0; i < k; ++i) {
      int code = static_cast<int>(engine() % (1U << static_cast<unsigned>(bits(kind.type))));
      if (!std::isfinite(code_value(kind.type, code))) code = 1;
      put_code(codes, weights.codes, row, i, code);
      const std::int64_t g = kind.scale && kind.group == 0 ? weights.group_index[index(i)]
                             : kind.group > 0              ? i / kind.group
                                                           : 0;
      const std::size_t at = index(row / kind.group_rows * groups + g);
      values.push_back((code_value(kind.type, code) - zero[at]) * scale[at]);
    }
  weights.codes.data = codes.data();
}

StoredMatrix::StoredMatrix(StreamView stream, const QuantizedCase& of, const QuantizedMatrix& stored)
    : kind(of),
      matrix(stored),
      codes(upload(stream, stored.codes)),
      scales(upload(stream, stored.scales)),
      zeros(upload(stream, stored.zeros)) {}

pack_codes::Args StoredMatrix::into(const PackedWeights& packed, std::int64_t expert) const {
  pack_codes::Args args{codes.view(), matrix.weights.codes, packed, expert};
  if (kind.scale) {
    args.scale = TensorView(scales.view(), *kind.scale, {matrix.weights.scale.rows, packed.groups()});
    args.group_rows = kind.group_rows;
  }
  if (kind.zero) args.zero = zeros.view(), args.zero_codes = matrix.weights.zero, args.zero_add = kind.zero_add;
  return args;
}

QuantizedOnDevice::QuantizedOnDevice(StreamView stream, const QuantizedCase& kind, std::int64_t experts, std::int64_t n,
                                     std::int64_t k, std::uint64_t seed) {
  const CodeType type = kind.type == CodeType::u8 ? CodeType::i8 : kind.type == CodeType::u4 ? CodeType::i4 : kind.type;
  codes = Buffer(*stream.context, PackedWeights::size_bytes(type, experts, n, k));
  enqueue_fill(stream, codes.view(), 0x7fc17fc1);
  weights = {codes.view(), type, experts, n, k};
  weights.group = kind.group;
  weights.layout = kind.layout;
  weights.panel_scales = kind.scale && kind.group > 0 && kind.group_rows % PackedWeights::panel_columns == 0;
  const std::int64_t groups = kind.group > 0 ? (k + kind.group - 1) / kind.group : kind.groups,
                     panels = PackedWeights::panels(n);
  if (kind.scale) {
    const auto elements = static_cast<std::uint64_t>(experts * panels * groups * 64);
    scale = Buffer(*stream.context, elements * size_bytes(*kind.scale));
    enqueue_fill(stream, scale.view(), 0x7fc17fc1);
    weights.scale = TensorView(scale.view(), *kind.scale, {experts, panels, groups, 64});
    if (kind.zero) zero = Buffer(*stream.context, elements * 2);
    if (kind.zero) weights.zero = TensorView(zero.view(), DType::i16, {experts, panels, groups, 64});
    if (kind.group == 0) group_index = Buffer(*stream.context, static_cast<std::uint64_t>(experts * k) * 4);
    if (kind.group == 0) weights.group_index = TensorView(group_index.view(), DType::i32, {experts, k});
  }
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const QuantizedMatrix matrix(kind, n, k, seed + index(expert));
    const StoredMatrix stored(stream, kind, matrix);
    if (kind.group == 0 && kind.scale)
      write_blocking(stream, weights.group_index.rows(expert, 1).buffer, matrix.weights.group_index.data(),
                     matrix.weights.group_index.size() * 4);
    pack_codes::enqueue(stream, stored.into(weights, expert));
    stream.finish();
    values.insert(values.end(), matrix.values.begin(), matrix.values.end());
  }
}

QuantizedRows::QuantizedRows(StreamView stream, DType type, DType scale, std::int64_t group, std::int64_t m,
                             std::int64_t k, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const CodeType element = type == DType::u8 ? CodeType::f4_e2m1 : code_type(type);
  const std::int64_t group_k = group == 0 ? k : group, groups = (k + group_k - 1) / group_k,
                     width = type == DType::u8 ? (k + 1) / 2 : k;
  CodeLayout layout = layout_of(element, CodePlacing::along_k, m, k);
  codes.resize(stored_bytes(layout));
  for (std::int64_t row = 0; row < m; ++row) {
    std::vector<double> row_scales;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::vector<unsigned char> bytes = random_scale(scale, engine);
      row_scales.push_back(scale_value(scale, bytes.data()));
      scales.insert(scales.end(), bytes.begin(), bytes.end());
    }
    for (std::int64_t i = 0; i < k; ++i) {
      int code = static_cast<int>(engine() % (1U << static_cast<unsigned>(bits(element))));
      if (!std::isfinite(code_value(element, code))) code = 1;
      put_code(codes, layout, row, i, code);
      values.push_back(code_value(element, code) * row_scales[index(i / group_k)]);
    }
  }
  code_memory = upload(stream, codes), scale_memory = upload(stream, scales);
  a = TensorView(code_memory.view(), type, {m, width});
  a_scale =
      group == 0 ? TensorView(scale_memory.view(), scale, {m}) : TensorView(scale_memory.view(), scale, {m, groups});
}

std::vector<SelfTestResult> self_test_quantized_weights(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const QuantizedCase& kind : {QuantizedCase{CodeType::i4, DType::f16, 32},
                                    {CodeType::f8_e4m3, DType::f32, 32, 0, false, 32},
                                    {CodeType::f4_e2m1, DType::u8, 32},
                                    {CodeType::f6_e3m2, DType::u8, 32}}) {
    GroupedGemmCase shape{{3, 0, 9}, 65, 40};
    shape.extra_roundings = 2;
    GroupedProduct product = make_product(shape, 1);
    const QuantizedOnDevice weights(stream, kind, 3, shape.n, shape.k, 2);
    product.weights = weights.values;
    GroupedGemmOperands operands(stream, shape, product);
    operands.args.weights = weights.weights;
    grouped_gemm::enqueue(stream, operands.args);
    results.push_back({"grouped_gemm", grouped_gemm::select(operands.args, {}, *stream.device), kind.describe(),
                       grouped_gemm_error(shape, product, operands.values(operands.args.out)), 1});
  }
  return results;
}

}  // namespace moecl::test
