// Tensor core instructions.
// Source: PTX ISA, register fragments of mma.m16n8k16, mma.m16n8k32, ldmatrix, stmatrix and wgmma, and wgmma's matrix
// descriptor.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/simulated_gpu/instruction_table.hpp"
#include "tests/simulated_gpu/short_floats.hpp"

namespace simulated_gpu {
namespace {

template <const moecl::Minifloat& format>
struct Fp8 {
  static float decode(std::uint8_t code) {
    static const auto numbers = [] {
      std::array<float, 256> all;
      for (int i = 0; i < 256; ++i) all[i] = format.decode(static_cast<std::uint8_t>(i));
      return all;
    }();
    return numbers[code];
  }
};
struct Int8 {
  static std::int32_t decode(std::uint8_t code) { return static_cast<std::int8_t>(code); }
};
template <class Element>
using SumOf = decltype(Element::decode(0));
/// Bytes of an element, and the K of one tensor core instruction.
template <class Element>
constexpr int size_of = std::is_same_v<Element, Bf16> || std::is_same_v<Element, F16> ? 2 : 1;
template <class Element>
constexpr int product_k = 32 / size_of<Element>;

/// Element i of a register.
template <class Element>
auto element(std::uint32_t word, int i) {
  constexpr int bits = 8 * size_of<Element>;
  return Element::decode(static_cast<std::conditional_t<bits == 16, std::uint16_t, std::uint8_t>>(word >> i * bits));
}

/// Collects the 16 rows of a left operand from its fragment, four registers of each lane.
template <class Element>
void rows_of_registers(SumOf<Element> (&rows)[16][product_k<Element>], const std::uint32_t* const (&words)[4]) {
  constexpr int in_word = 4 / size_of<Element>;
  for (int lane = 0; lane < warp_lanes; ++lane)
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < in_word; ++i)
        rows[lane / 4 + part % 2 * 8][lane % 4 * in_word + part / 2 * 4 * in_word + i] =
            element<Element>(words[part][lane], i);
}

template <class Element>
Flow multiply(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  using Sum = SumOf<Element>;
  constexpr int in_word = 4 / size_of<Element>;
  const auto& operands = instruction.operands;
  Sum a[16][product_k<Element>], b[product_k<Element>][8];
  const std::uint32_t* words[4];
  for (int i = 0; i < 4; ++i) words[i] = warp.words(operands[1].parts[i]);
  rows_of_registers<Element>(a, words);
  for (int part = 0; part < 2; ++part) {
    const std::uint32_t* const of_lanes = warp.words(operands[2].parts[part]);
    for (int lane = 0; lane < warp_lanes; ++lane)
      for (int i = 0; i < in_word; ++i)
        b[lane % 4 * in_word + part * 4 * in_word + i][lane / 4] = element<Element>(of_lanes[lane], i);
  }
  for (int part = 0; part < 4; ++part) {
    const Lanes<Sum> before = warp.fetch<Sum>(operands[3].parts[part]);
    Lanes<Sum> after;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      Sum sum = 0;
      for (int k = 0; k < product_k<Element>; ++k) sum += a[lane / 4 + part / 2 * 8][k] * b[k][lane % 4 * 2 + part % 2];
      after[lane] = before[lane] + sum;
    }
    warp.store(operands[0].parts[part], after);
  }
  return Flow::next;
}

template <bool is_transposed>
Flow load_matrices(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Operand& from = instruction.operands[1];
  const Lanes<std::uint64_t> base = warp.fetch<std::uint64_t>(from.parts[0]);
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t rows[8][8];
    for (int row = 0; row < 8; ++row)
      std::memcpy(rows[row], warp.group.shared_at(base[matrix * 8 + row] + from.value, 16), 16);
    Lanes<std::uint32_t> pairs;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const int i = lane / 4, j = lane % 4 * 2;
      pairs[lane] = is_transposed ? rows[j][i] | static_cast<std::uint32_t>(rows[j + 1][i]) << 16
                                  : rows[i][j] | static_cast<std::uint32_t>(rows[i][j + 1]) << 16;
    }
    warp.store(instruction.operands[0].parts[matrix], pairs);
  }
  return Flow::next;
}

Flow store_transposed_matrices(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Operand& to = instruction.operands[0];
  const Lanes<std::uint64_t> base = warp.fetch<std::uint64_t>(to.parts[0]);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const std::uint32_t* const pairs = warp.words(instruction.operands[1].parts[matrix]);
    for (int row = 0; row < 8; ++row) {
      std::uint16_t numbers[8];
      for (int column = 0; column < 8; ++column)
        numbers[column] = static_cast<std::uint16_t>(pairs[column * 4 + row / 2] >> row % 2 * 16);
      const std::uint64_t address = base[matrix * 8 + row] + to.value;
      std::memcpy(warp.group.shared_at(address, 16), numbers, 16);
      warp.group.proxies.write(address, 16, warp.number);
    }
  }
  return Flow::next;
}

/// A matrix descriptor of wgmma: a matrix in local memory, in the 128-byte swizzle.
struct Descriptor {
  std::uint64_t start, leading, stride;

  explicit Descriptor(std::uint64_t bits)
      : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4), stride((bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1 || (bits >> 49 & 7) != 0)
      throw Fault("wgmma: a descriptor of another swizzle than of 128 bytes from its start");
  }
  static std::uint64_t swizzled(std::uint64_t address) { return address ^ (address >> 7 & 7) << 4; }
  /// Address of 16 bytes of a row, from `byte` on. K-major: a line of 128 bytes belongs to one row.
  std::uint64_t in_rows(int row, int byte) const { return swizzled(start + row / 8 * stride + row % 8 * 128 + byte); }
  /// Address of 8 numbers, from `column` on. A line of 128 bytes belongs to one k.
  std::uint64_t in_columns(int column, int k) const {
    return swizzled(start + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2);
  }
};
/// The elements in 16 bytes of an operand.
template <class Element>
auto elements_at(Warp& warp, std::uint64_t address) {
  constexpr int count = 16 / size_of<Element>;
  std::uint32_t words[4];
  std::memcpy(words, warp.group.shared_at(address, 16), 16);
  warp.group.proxies.check(address, warp.number);
  std::array<SumOf<Element>, count> elements;
  for (int i = 0; i < count; ++i)
    elements[i] = element<Element>(words[i * size_of<Element> / 4], i % (4 / size_of<Element>));
  return elements;
}

template <class Element>
constexpr bool is_f8 = size_of<Element> == 1 && std::is_same_v<SumOf<Element>, float>;

/// Exponents of 8-bit floats lie within `f8_exponents` of 0. Zero, infinities and NaN have exponents far from these, so
/// that the sum of two exponents reveals them.
constexpr int f8_exponents = 32, zero_exponent = -1000, nan_exponent = 10000;
int f8_exponent(float x) { return x == 0 ? zero_exponent : std::isfinite(x) ? std::ilogb(x) : nan_exponent; }

/// `sum` plus the products of a K-step, as Hopper's wgmma adds fp8 products: before the addition, the bits of each term
/// below 2^-13 of the largest term's exponent are cut off. A product's exponent is the sum of its factors' exponents.
/// Source: an H200's results for tests/kernels_cl/quantized_gemm_test.cpp, whose largest errors this gives to the last
/// digit in four of eight products and to 1.5 % in the others; DeepSeek-V3's report speaks of about 14 bits.
float add_f8_products(float sum, const float* a, const int* a_exponents, const float* b, const int* b_exponents) {
  constexpr int depth = product_k<Fp8<moecl::fp8_e4m3fn>>;
  int of_products = zero_exponent;
  for (int k = 0; k < depth; ++k) of_products = std::max(of_products, a_exponents[k] + b_exponents[k]);
  if (of_products >= nan_exponent + zero_exponent || !std::isfinite(sum)) {
    for (int k = 0; k < depth; ++k) sum += a[k] * b[k];
    return sum;
  }
  const bool has_products = of_products > zero_exponent + f8_exponents;
  if (sum == 0 && !has_products) return sum;
  const int top = std::max(sum == 0 ? of_products : std::ilogb(sum), of_products);
  int units = 0;
  if (has_products) {
    const float units_of_one = std::ldexp(1.0F, 13 - top);
    for (int k = 0; k < depth; ++k) units += static_cast<int>(a[k] * b[k] * units_of_one);
  }
  const double unit = std::ldexp(1.0, top - 13);
  return static_cast<float>((std::trunc(sum / unit) + units) * unit);
}

/// Computes the warp's 16 rows of the warp group's product, which has two columns for each accumulator register.
template <class Element>
void finish_product(Warp& warp, const Instruction& instruction, std::uint64_t a_bits, std::uint64_t b_bits, bool adds) {
  using Sum = SumOf<Element>;
  constexpr int depth = product_k<Element>, chunk = 16 / size_of<Element>;
  const auto& operands = instruction.operands;
  const int columns = 2 * static_cast<int>(operands[0].parts.size());
  Sum a[16][depth], b[256][depth];
  if (operands[1].kind == Operand::Kind::parts) {
    const std::uint32_t* words[4];
    for (int i = 0; i < 4; ++i) words[i] = warp.words(operands[1].parts[i]);
    rows_of_registers<Element>(a, words);
  } else {
    const Descriptor at(a_bits);
    const int first = static_cast<int>(warp.number % 4) * 16;
    if (size_of<Element> == 2 && operands[operands.size() - 2].value == 1) {  // a line for each k
      for (int k = 0; k < depth; ++k)
        for (int row = 0; row < 16; row += chunk) {
          const auto elements = elements_at<Element>(warp, at.in_columns(first + row, k));
          for (int i = 0; i < chunk; ++i) a[row + i][k] = elements[i];
        }
    } else {
      for (int row = 0; row < 16; ++row)
        for (int k = 0; k < depth; k += chunk)
          std::ranges::copy(elements_at<Element>(warp, at.in_rows(first + row, k * size_of<Element>)), a[row] + k);
    }
  }
  const Descriptor at(b_bits);
  const bool is_by_k = size_of<Element> == 2 && operands.back().value == 1;  // the last operand of 16-bit products
  if (is_by_k) {
    for (int k = 0; k < depth; ++k)
      for (int column = 0; column < columns; column += chunk) {
        const auto elements = elements_at<Element>(warp, at.in_columns(column, k));
        for (int i = 0; i < chunk; ++i) b[column + i][k] = elements[i];
      }
  } else {
    for (int column = 0; column < columns; ++column)
      for (int k = 0; k < depth; k += chunk)
        std::ranges::copy(elements_at<Element>(warp, at.in_rows(column, k * size_of<Element>)), b[column] + k);
  }
  int a_exponents[16][depth], b_exponents[256][depth];
  if constexpr (is_f8<Element>) {
    for (int row = 0; row < 16; ++row) std::ranges::transform(a[row], a_exponents[row], f8_exponent);
    for (int column = 0; column < columns; ++column)
      std::ranges::transform(b[column], b_exponents[column], f8_exponent);
  }
  for (int i = 0; i < columns / 2; ++i) {
    std::uint32_t* const of_lanes = warp.words(operands[0].parts[i]);
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const Sum before = adds ? std::bit_cast<Sum>(of_lanes[lane]) : 0;
      if constexpr (is_f8<Element>) {
        of_lanes[lane] = std::bit_cast<std::uint32_t>(
            add_f8_products(before, a[row], a_exponents[row], b[column], b_exponents[column]));
      } else {
        Sum sum = 0;
        for (int k = 0; k < depth; ++k) sum += a[row][k] * b[column][k];
        of_lanes[lane] = std::bit_cast<std::uint32_t>(before + sum);
      }
    }
  }
}
template <class Element, int columns>
Flow begin_product(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const auto& operands = instruction.operands;
  const std::uint64_t a = operands[1].kind == Operand::Kind::parts ? 0 : warp.fetch<std::uint64_t>(operands[1])[0];
  const std::uint64_t b = warp.fetch<std::uint64_t>(operands[2])[0];
  const bool adds = (warp.fetch<std::uint32_t>(operands[3])[0] & 1) != 0;
  if (operands[0].parts.size() != columns / 2) throw Fault("wgmma: a wrong number of sums");
  warp.products.add([&warp, &instruction, a, b, adds] { finish_product<Element>(warp, instruction, a, b, adds); });
  return Flow::next;
}
Flow fence_products(Warp& warp, const Instruction&) { return warp.all_are_here() ? Flow::next : Flow::wait; }
Flow commit_products(Warp& warp, const Instruction&) {
  if (!warp.all_are_here()) return Flow::wait;
  warp.products.commit();
  return Flow::next;
}
Flow wait_for_products(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  warp.products.finish_but(static_cast<int>(instruction.operands[0].value));
  return Flow::next;
}

template <class Element>
void add_products(Table& table, const std::string& type) {
  using Sum = SumOf<Element>;
  const std::string sum = std::is_same_v<Sum, float> ? ".f32" : ".s32", k = "k" + std::to_string(product_k<Element>);
  table["mma.sync.aligned.m16n8" + k + ".row.col" + sum + type + type + sum] = multiply<Element>;
  const auto shape = [&](int columns) {
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + k + sum + type + type;
  };
  constexpr int step = std::is_same_v<Sum, float> ? 8 : 16;
  [&]<int... i>(std::integer_sequence<int, i...>) {
    ((table[shape(step * (i + 1))] = begin_product<Element, step*(i + 1)>), ...);
  }
  (std::make_integer_sequence<int, 256 / step>());
}

}  // namespace

void add_matrix_products(Table& table) {
  add_products<Bf16>(table, ".bf16");
  add_products<F16>(table, ".f16");
  add_products<Fp8<moecl::fp8_e4m3fn>>(table, ".e4m3");
  add_products<Fp8<moecl::fp8_e5m2>>(table, ".e5m2");
  add_products<Int8>(table, ".s8");
  table["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = load_matrices<false>;
  table["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = load_matrices<true>;
  table["stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = store_transposed_matrices;
  table["wgmma.fence.sync.aligned"] = fence_products;
  table["wgmma.commit_group.sync.aligned"] = commit_products;
  table["wgmma.wait_group.sync.aligned"] = wait_for_products;
}

}  // namespace simulated_gpu
