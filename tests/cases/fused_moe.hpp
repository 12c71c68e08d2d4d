#pragma once
#include <moecl/fused_moe.hpp>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/cases/grouped_gemm.hpp"
#include "tests/cases/quantized_matrices.hpp"

namespace moecl::test {

/// A layer of random weights. `fused_moe_truth` computes its output in double precision.
struct FusedMoeCase {
  std::int64_t tokens = 3, hidden = 64, intermediate = 64;
  std::int32_t experts = 8, top_k = 2;
  DType dtype = DType::bf16;
  bool biased = false, shared = false;
  Activation activation = {};
  RouterSpec router = {};
  std::optional<QuantizedCase> codes = {};  ///< the experts' weights as codes; else they have `dtype`
  bool column_scales = false;               ///< the experts' weights have column scales, beside those of groups
  /// How rows of both products are quantized to 8 bits: format, group and rule. Empty: they are not.
  std::optional<quantize_groups::Args> rows = {};

  std::string describe() const;
  /// Of `out`: another order of sums may give another code, or another 16-bit number.
  double tolerance() const { return rows ? 0x1p-7 : 0x1p-9; }
};

struct FusedMoeTruth {
  std::vector<double> out;  ///< [T, H], of activated rows rounded to the case's type, or to codes
  std::vector<std::int32_t> ids;
};

/// The operands of a case on a device, and its outputs.
class FusedMoeOperands {
 public:
  FusedMoeOperands(StreamView stream, const FusedMoeCase& shape, const fused_moe::Config& config);

  fused_moe::Args args;
  RouterSpec router;
  TensorView ids, out, fault;
  std::vector<double> values(const TensorView& view) const;

 private:
  StreamView stream_;
  std::deque<PackedOnDevice> packed_;
  std::deque<QuantizedOnDevice> quantized_;
  std::deque<DeviceTensor> tensors_;
  Buffer scratch_;
};

FusedMoeTruth fused_moe_truth(const FusedMoeCase& shape);
/// Codes without group scales, or with scales for groups of columns.
QuantizedCase codes_as(CodeType type, std::optional<DType> scale = {}, std::int64_t group = 0, bool zero = false);
/// Schemes of a layer by name, each on a small case.
std::vector<std::pair<const char*, FusedMoeCase>> fused_moe_schemes();

}  // namespace moecl::test
