#pragma once
// What the files of the C interface share: its handles, the function that turns exceptions into a status, and structs
// that may grow in later versions.
#include <moecl/context.hpp>
#include <moecl/dtype.hpp>
#include <moecl/error.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/moecl.h>
#include <moecl/stream.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

// Streams and layers hold a reference to their context, so handles may be destroyed in any order.
struct moecl_context {
  std::shared_ptr<moecl::Context> context;
};

struct moecl_stream {
  std::shared_ptr<moecl::Context> context;
  moecl::Stream stream;
};

struct moecl_layer {
  std::shared_ptr<moecl::Context> context;
  moecl::MoeLayer layer;
  std::string router_spec = {};  ///< path of the spec that the layer was loaded with; empty: none
};

namespace moecl::c_api {

/// Keeps the message for this thread and returns the status.
moecl_status failed(moecl_status status, const char* message) noexcept;
moecl_status status_of(ErrorCode code) noexcept;

/// Runs the body of a C function. An exception becomes a status and a message.
template <class Body>
moecl_status guarded(Body&& body) noexcept {
  try {
    expect_driver_process();
    body();
    return MOECL_OK;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(MOECL_OUT_OF_MEMORY, "the host could not allocate memory");
  } catch (const std::exception& error) {
    return failed(MOECL_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(MOECL_INTERNAL_ERROR, "an exception of a foreign type");
  }
}

template <class T>
T& required(T* pointer, const char* what) {
  require(pointer != nullptr, "{}: the pointer is null", what);
  return *pointer;
}

/// Copies a text, cut so that it and its NUL fit in `room` bytes.
inline void copy_text(const std::string& from, char* to, std::size_t room) { to[from.copy(to, room - 1)] = '\0'; }
template <std::size_t N>
void copy_text(const std::string& from, char (&to)[N]) {
  copy_text(from, to, N);
}

inline const char* text_or_empty(const char* text) { return text != nullptr ? text : ""; }

/// A field that was left at zero has its default.
template <class T>
T or_default(T given, T by_default) {
  return given == T{} ? by_default : given;
}

/// The type of a moecl_dtype; nullopt for MOECL_DEFAULT_DTYPE. Errors: invalid_argument  unknown; `what` names it
std::optional<DType> to_dtype(std::int32_t number, const char* what);
/// Errors: unsupported
std::int32_t number_of(DType dtype);
/// A floating-point type of a layer. Errors: invalid_argument  neither f32, f16 nor bf16
DType dtype_of(std::int32_t number, const char* what);

/// The caller's memory from the array's offset to the end of the cl_mem.
/// Errors: invalid_argument  the cl_mem is no buffer of the context, or the offset is past its end or misaligned
BufferView memory_of(const Context& context, moecl_device_array array, std::uint64_t alignment, const char* what);
/// A matrix [rows, columns] in the caller's memory. With 0 rows the cl_mem may be null.
/// Errors: invalid_argument  as memory_of, or the rows do not fit
TensorView tensor_of(const Context& context, moecl_device_array array, const char* what, DType dtype, std::int64_t rows,
                     std::int64_t columns);
/// As `tensor_of`; a null cl_mem gives an absent tensor.
inline TensorView optional_tensor(const Context& context, moecl_device_array array, const char* what, DType dtype,
                                  std::int64_t rows, std::int64_t columns) {
  return array.memory == nullptr ? TensorView() : tensor_of(context, array, what, dtype, rows, columns);
}
/// Errors: invalid_argument  a null event, or one of another cl_context
WaitList wait_list(const Context& context, std::uint32_t count, _cl_event* const* events);

/// Checks `size_bytes` of a caller's struct: a multiple of `alignment`, and not what an unset variable would hold.
std::size_t checked_size(std::uint64_t size_bytes, std::size_t alignment, const char* what);
/// Fails if a byte after the fields known here is not 0.
void expect_zero_tail(const void* from, std::size_t known_bytes, std::size_t size_bytes, const char* what);

/// A copy of the caller's struct. Fields that an older version of the struct lacks are zero.
template <class T>
T read_struct(const T* from, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t size = checked_size(required(from, what).size_bytes, alignof(T), what);
  expect_zero_tail(from, sizeof(T), size, what);
  T copy{};
  std::memcpy(&copy, from, std::min(size, sizeof(T)));
  return copy;
}

/// As `read_struct`; a null pointer gives the defaults.
template <class T>
T read_options(const T* from, const char* what) {
  return from == nullptr ? T{} : read_struct(from, what);
}

/// Fills the caller's struct up to its own size. Fields that only a newer version of the struct has become zero.
template <class T>
void write_struct(T from, T* to, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  from.size_bytes = required(to, what).size_bytes;
  const std::size_t size = checked_size(from.size_bytes, alignof(T), what);
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof(T)));
}

}  // namespace moecl::c_api
