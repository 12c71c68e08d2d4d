#pragma once
#include <moecl/fused_moe.hpp>

#include <deque>
#include <string>
#include <vector>

#include "tests/cases/grouped_gemm.hpp"

namespace moecl::test {

/// A layer of random weights, and what it makes of tokens in double precision.
struct FusedMoeCase {
  std::int64_t tokens = 3, hidden = 64, intermediate = 64;
  std::int32_t experts = 8, top_k = 2;
  DType dtype = DType::bf16;
  bool biased = false, shared = false;
  Activation activation = {};
  RouterSpec router = {};

  std::string describe() const;
};

struct FusedMoeTruth {
  std::vector<double> out;  ///< [T, H], of activated rows rounded to the case's type
  std::vector<std::int32_t> ids;
};

/// Its operands on a device, and where it answers.
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
  std::deque<DeviceTensor> tensors_;
  Buffer scratch_;
};

FusedMoeTruth fused_moe_truth(const FusedMoeCase& shape);

}  // namespace moecl::test
