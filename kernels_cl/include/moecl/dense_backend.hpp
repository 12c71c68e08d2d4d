#pragma once
#include <moecl/device.hpp>
#include <moecl/dtype.hpp>

#include <cstdint>
#include <string>

/// Which code computes dense products on a device: our grouped product with one expert, or CLBlast. Data, not trial:
/// kernels_cl/tuning/dense_backend.json holds what was measured.
namespace moecl::dense_backend {

enum class Backend : std::uint8_t { grouped_gemm, clblast };

const char* name(Backend backend) noexcept;

struct Choice {
  Backend backend = Backend::grouped_gemm;
  std::string reason;  ///< for summaries: the measurement or the rule that decided
};

/// For x W^T over one matrix (router, shared experts), weights and activations stored as `dtype`.
Choice select(const DeviceCaps& caps, DType dtype);
/// For the experts' products in the batched layout.
Choice select_batched(const DeviceCaps& caps, DType dtype);

}  // namespace moecl::dense_backend
