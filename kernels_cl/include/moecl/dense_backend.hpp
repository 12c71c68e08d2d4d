#pragma once
#include <moecl/device.hpp>
#include <moecl/dtype.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// Chooses the code that computes dense products on a device: grouped_gemm with one expert, or CLBlast. Recorded
/// measurements decide, not trials at run time. The shipped table is kernels_cl/tuning/dense_backend.json, embedded in
/// the library; the user's table holds the measurements of `moecl tune` on this machine.
namespace moecl::dense_backend {

/// Whose kernels compute the product: grouped_gemm's with one expert, or CLBlast's.
enum class Backend : std::uint8_t { grouped_gemm, clblast };

/// "grouped_gemm", "clblast"
const char* name(Backend backend) noexcept;

/// A backend, and why it was chosen.
struct Choice {
  Backend backend = Backend::grouped_gemm;
  std::string reason = {};   ///< for summaries: the measurement or the rule that decided
  bool measured = false;     ///< true: a measurement decided; false: a rule
  std::string problem = {};  ///< why the user's table was ignored; for the log
};

/// The backend for x W^T with one matrix (router, shared experts); weights and activations are stored as `dtype`.
///
/// The entry of the user's table that is closest to the device decides; without one, an entry of the shipped table
/// does. The choice is the backend that was faster in the geometric mean over the entry's products. It is grouped_gemm
/// where no entry matches, and for every type but f32.
Choice select(const DeviceCaps& caps, DType dtype);
/// The backend for the experts' products in the batched layout.
Choice select_batched(const DeviceCaps& caps, DType dtype);

/// The rule of both functions, applied to any measurements. `kind`: "dense" or "batched".
/// Errors: invalid_data  `measurements` is not JSON of the tables' format
Choice select_from(std::string_view measurements, std::string_view kind, const DeviceCaps& caps, DType dtype);

}  // namespace moecl::dense_backend
