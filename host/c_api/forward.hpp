#pragma once
// The arguments of a forward pass, on one rank or several.
#include "host/c_api/c_api.hpp"

namespace moecl::c_api {

/// Errors: invalid_argument  no four numbers in a cl_mem of the context
TensorView fault_word(const Context& context, moecl_device_array array);

/// Of expert ids: i32, also for MOECL_DEFAULT_DTYPE, or i64. Errors: invalid_argument  another
DType ids_dtype(std::int32_t number, const char* what);
/// Absent where there is no memory. Shape: [count]. Errors: invalid_argument
TensorView vector_of(const Context& context, moecl_device_array array, const char* what, DType dtype,
                     std::int64_t count);

/// The caller's memory for a pass; absent: none.
BufferView workspace_of(const Context& context, moecl_device_array workspace, std::uint64_t bytes);
/// @param local_experts  those of this rank. Errors: invalid_argument
MoeForward forward_args(const Context& context, const MoeShape& shape, const MoeLayerOptions& options,
                        std::int64_t local_experts, const moecl_forward_args& args);

}  // namespace moecl::c_api
