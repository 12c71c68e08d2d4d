#pragma once
// The cases that the benchmarks by model run: the experts of a named shape, stored by a scheme.
#include <moecl/device.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/quant_scheme.hpp>

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "bench/roof.hpp"
#include "host/checkpoint/weight_quantizer.hpp"

namespace moecl::bench {

/// "f32", "f16", "bf16", or a QuantScheme by its name, with bf16 for all that the scheme leaves plain.
struct Scheme {
  std::string name;
  DType plain = DType::bf16;
  QuantScheme quant;

  /// Errors: invalid_argument  no such scheme; the message lists them
  static Scheme named(const std::string& name);
  /// Bits of one weight, with its share of the group scales.
  double weight_bits() const;
  Bound bound() const;
};
std::vector<std::string> known_bench_schemes();

struct ModelCase {
  std::string shape_name;  ///< "mixtral-8x7b"; "deepseek-v3-e16": the first 16 experts alone
  MoeShape shape;
  Scheme scheme;

  /// @param experts  a slice of this many; 0: as many as fit a test machine, that is 16 of deepseek-v3, all of others
  /// Errors: invalid_argument  no such shape, or its router cannot choose among so few
  static ModelCase named(const std::string& shape, std::int32_t experts, const Scheme& scheme);
  /// Bytes of an expert's weights.
  double expert_bytes() const;
  /// The number of layers that must take turns, so that the weights that `active` experts read are out of the device's
  /// cache when their turn comes again. At most as many layers as fit half of the device's memory.
  int layers_out_of_cache(std::int64_t active, double bytes_of_expert, const Device& device) const;
};

/// Weights of the case in host memory: a few normal numbers, repeated. The plain matrices of different experts differ.
struct ModelWeights {
  MoeWeights weights;

  /// `all`: also the weights that are not the experts'.
  ModelWeights(const ModelCase& model, bool all);

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::deque<QuantizedWeights> quantized_;

  HostMatrix make(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t spare = 0);
  WeightMatrix make_expert(const ModelCase& model, std::int64_t rows, std::int64_t columns);
};

/// `count` normal values, repeated from a few thousand, divided by sqrt(`width`).
std::vector<std::byte> repeated_values(DType dtype, std::int64_t count, std::int64_t width);

}  // namespace moecl::bench
