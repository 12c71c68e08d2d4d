#pragma once
// The arguments of a forward pass, on one rank or several.
#include "host/c_api/c_api.hpp"

namespace moecl::c_api {

/// The fault word, [4] i32. Errors: invalid_argument  the array is no cl_mem of the context with room for it
TensorView fault_word(const Context& context, moecl_device_array array);

/// The type of expert ids: i32, also for MOECL_DEFAULT_DTYPE, or i64. Errors: invalid_argument  any other
DType ids_dtype(std::int32_t number, const char* what);
/// A vector; a null cl_mem gives an absent one. Shape: [count]. Errors: invalid_argument
TensorView vector_of(const Context& context, moecl_device_array array, const char* what, DType dtype,
                     std::int64_t count);

/// The caller's workspace for a pass; a null cl_mem gives an absent view. `bytes` 0: up to the end of the cl_mem.
BufferView workspace_of(const Context& context, moecl_device_array workspace, std::uint64_t bytes);
/// @param local_experts  The number of experts on this rank. Errors: invalid_argument
MoeForward forward_args(const Context& context, const MoeShape& shape, const MoeLayerOptions& options,
                        std::int64_t local_experts, const moecl_forward_args& args);

}  // namespace moecl::c_api
