#pragma once
#include <moecl/quantization_error.hpp>

#include <cmath>
#include <deque>

#include "host/checkpoint/weight_quantizer.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {

/// The experts of a layer, quantized on the host, and the error of the codes.
struct HostCodes {
  MoeWeights weights;
  QuantizationError error;

  HostCodes(const MoeWeights& plain, const OperandQuant& to) : weights(plain) {
    for (ExpertMatrices& expert : weights.experts)
      for (WeightMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
        if (!matrix->present()) continue;
        const HostMatrix numbers = matrix->plain;
        *matrix = memory_.emplace_back(quantize_weights(numbers, to)).matrix;
        for (std::int64_t n = 0; n < numbers.rows; ++n)
          for (std::int64_t k = 0; k < numbers.columns; ++k) add(matrix_element(numbers, n, k), *matrix, n, k);
      }
  }

 private:
  void add(double number, const WeightMatrix& codes, std::int64_t n, std::int64_t k) {
    const double difference = weight_element(codes, n, k) - number;
    error.add({std::abs(difference), std::abs(number), difference * difference, number * number});
  }
  std::deque<QuantizedWeights> memory_;
};

}  // namespace moecl::test
