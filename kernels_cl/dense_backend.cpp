#include <moecl/dense_backend.hpp>

namespace moecl::dense_backend {

const char* name(Backend backend) noexcept { return backend == Backend::clblast ? "clblast" : "grouped_gemm"; }

Choice select(const DeviceCaps&, DType) {
  return {Backend::grouped_gemm, "default: nothing was measured on this device"};
}
Choice select_batched(const DeviceCaps& caps, DType dtype) { return select(caps, dtype); }

}  // namespace moecl::dense_backend
