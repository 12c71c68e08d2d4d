#pragma once
#include <moecl/device.hpp>
#include <moecl/dtype.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// Which code computes dense products on a device: our grouped product with one expert, or CLBlast. Data, not trial:
/// kernels_cl/tuning/dense_backend.json, embedded in the library, holds what was measured, and the user's table what
/// `moecl tune` measured here.
namespace moecl::dense_backend {

/// Whose kernels: grouped_gemm of one expert, or those of CLBlast.
enum class Backend : std::uint8_t { grouped_gemm, clblast };

/// "grouped_gemm", "clblast"
const char* name(Backend backend) noexcept;

/// A backend, and why it was chosen.
struct Choice {
  Backend backend = Backend::grouped_gemm;
  std::string reason = {};   ///< for summaries: the measurement or the rule that decided
  bool measured = false;     ///< else a rule
  std::string problem = {};  ///< why the user's table was ignored; for the log
};

/// For x W^T over one matrix (router, shared experts), weights and activations stored as `dtype`.
///
/// The entry of the user's table that is closest to the device decides, else one of the shipped table, for the backend
/// that was faster in the geometric mean over the entry's products; grouped_gemm where none matches, and for every type
/// but f32.
Choice select(const DeviceCaps& caps, DType dtype);
/// For the experts' products in the batched layout.
Choice select_batched(const DeviceCaps& caps, DType dtype);

/// The rule behind both, over any measurements. `kind`: "dense" or "batched".
/// Errors: invalid_data  `measurements` is not such JSON
Choice select_from(std::string_view measurements, std::string_view kind, const DeviceCaps& caps, DType dtype);

}  // namespace moecl::dense_backend
