#pragma once
// Libraries that multiply well but know no experts: the rows of each expert are a separate product.
#include <cstdint>
#include <memory>

#include "bench/roof.hpp"

namespace moecl::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  /// Adds the next expert's weights, row-major [N, K]: f32, bf16 or i8. Copies them into the library's preferred form.
  virtual void add_expert(const void* weights) = 0;
  /// out [rows, N] = a [rows, K] x W^T: f32 to f32, bf16 to f32, u8 to i32.
  virtual void multiply(std::size_t expert, std::int64_t rows, const void* a, void* out) = 0;
};

/// silu(gate) * up of rows [gate | up], by oneDNN.
class GatedSilu {
 public:
  virtual ~GatedSilu() = default;
  /// out [rows, I] f32 or bf16 from gate_up [rows, 2 I] f32, which it may overwrite.
  virtual void apply(std::int64_t rows, float* gate_up, void* out) = 0;
};
std::unique_ptr<GatedSilu> gated_silu(Arithmetic arithmetic, std::int64_t intermediate);

/// `rows`: the typical number of rows of an expert, for the choice of the weights' form.
std::unique_ptr<Peer> onednn_peer(Arithmetic arithmetic, std::int64_t n, std::int64_t k, std::int64_t rows);
/// Supports f32 only.
std::unique_ptr<Peer> openblas_peer(std::int64_t n, std::int64_t k);

}  // namespace moecl::bench
