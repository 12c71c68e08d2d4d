#pragma once
// Libraries that multiply well and know no experts: each expert's rows are a product of their own.
#include <cstdint>
#include <memory>

#include "bench/roof.hpp"

namespace moecl::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  /// The next expert's weights, row-major [N, K]: f32, bf16 or i8. Copies them into the form the library likes.
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

/// `rows`: what an expert typically has, for the choice of the form.
std::unique_ptr<Peer> onednn_peer(Arithmetic arithmetic, std::int64_t n, std::int64_t k, std::int64_t rows);
/// f32 alone.
std::unique_ptr<Peer> openblas_peer(std::int64_t n, std::int64_t k);

}  // namespace moecl::bench
