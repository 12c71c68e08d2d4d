#pragma once
// Random quantized matrices in the layouts of checkpoints, and their values, computed without the code under test.
#include <moecl/moe_weights.hpp>
#include <moecl/pack_codes.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// How checkpoints place codes.
enum class CodePlacing : std::uint8_t {
  along_k,      ///< as many per byte as fit; fp6: four in three bytes
  words_k,      ///< eight int4 to a word along K, [K / 8, N]. Source: GPTQ
  words_n_awq,  ///< eight int4 to a word along N, interleaved, [K, N / 8]
};

struct QuantizedCase {
  CodeType type = CodeType::i4;
  std::optional<DType> scale;  ///< of groups of K
  std::int64_t group = 0;      ///< columns; 0: a random group for each k, of `groups`
  std::int64_t groups = 0;     ///< with group = 0
  bool zero = false;
  std::int64_t group_rows = 1;
  CodePlacing placing = CodePlacing::along_k;
  std::int32_t zero_add = 0;
  PanelLayout layout = PanelLayout::n_major;  ///< on a device

  std::string describe() const;
};

/// One matrix [n, k] as a checkpoint stores it. `weights` views its codes.
struct QuantizedMatrix {
  std::vector<unsigned char> codes, scales, zeros;
  std::vector<double> values;  ///< [n, k], (code - zero) * scale, not rounded
  WeightMatrix weights;

  QuantizedMatrix(const QuantizedCase& kind, std::int64_t n, std::int64_t k, std::uint64_t seed);
  QuantizedMatrix(const QuantizedMatrix&) = delete;
  QuantizedMatrix& operator=(const QuantizedMatrix&) = delete;
};

/// That matrix in a device's memory, as pack_codes takes it.
struct StoredMatrix {
  const QuantizedCase kind;
  const QuantizedMatrix& matrix;
  Buffer codes, scales, zeros;

  StoredMatrix(StreamView stream, const QuantizedCase& of, const QuantizedMatrix& stored);
  /// Arguments that pack it as the expert's columns, from column 0 on.
  pack_codes::Args into(const PackedWeights& packed, std::int64_t expert) const;
};

/// Some experts' matrices [E, n, k] on a device. Stops the host.
struct QuantizedOnDevice {
  Buffer codes, scale, zero, group_index;
  PackedWeights weights;
  std::vector<double> values;  ///< [E, n, k]

  QuantizedOnDevice(StreamView stream, const QuantizedCase& kind, std::int64_t experts, std::int64_t n, std::int64_t k,
                    std::uint64_t seed);
};

/// Random rows [m, k] of codes, and their values with scales.
struct QuantizedRows {
  std::vector<unsigned char> codes, scales;
  std::vector<double> values;  ///< [m, k]
  Buffer code_memory, scale_memory;
  TensorView a, a_scale;  ///< operands of grouped_gemm

  /// `type`: f8_e4m3, f8_e5m2, i8, or u8 for f4_e2m1, two per byte. `scale`: f32, f8_e4m3 or u8, one per `group`
  /// columns.
  QuantizedRows(StreamView stream, DType type, DType scale, std::int64_t group, std::int64_t m, std::int64_t k,
                std::uint64_t seed);
};

/// The number that a code stands for; integers stand for themselves.
double code_value(CodeType type, int code);
/// The value of a group's scale stored as `type`.
double scale_value(DType type, const unsigned char* at);

}  // namespace moecl::test
