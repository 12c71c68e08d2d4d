// Checks the caller's OpenCL objects: memory and events.
#include <CL/cl.h>

#include "host/c_api/c_api.hpp"

namespace moecl::c_api {
namespace {

template <class T>
T memory_info(cl_mem memory, cl_mem_info name) {
  T value{};
  check_cl(clGetMemObjectInfo(memory, name, sizeof(value), &value, nullptr), "clGetMemObjectInfo");
  return value;
}

}  // namespace

BufferView memory_of(const Context& context, moecl_device_array array, std::uint64_t alignment, const char* what) {
  require(array.memory != nullptr, "{}: the cl_mem is null", what);
  require(memory_info<cl_mem_object_type>(array.memory, CL_MEM_TYPE) == CL_MEM_OBJECT_BUFFER,
          "{}: the cl_mem is no buffer", what);
  require(memory_info<cl_context>(array.memory, CL_MEM_CONTEXT) == context.handle(),
          "{}: the cl_mem belongs to another cl_context", what);
  const auto size = memory_info<std::size_t>(array.memory, CL_MEM_SIZE);
  require(array.offset_bytes % alignment == 0, "{}: byte offset {} is no multiple of {}", what, array.offset_bytes,
          alignment);
  require(array.offset_bytes <= size, "{}: byte offset {} in a cl_mem of {} bytes", what, array.offset_bytes, size);
  return {array.memory, array.offset_bytes, size - array.offset_bytes};
}

TensorView tensor_of(const Context& context, moecl_device_array array, const char* what, DType dtype, std::int64_t rows,
                     std::int64_t columns) {
  if (rows == 0 && array.memory == nullptr) return {{}, dtype, {0, columns}};
  const BufferView memory = memory_of(context, array, size_bytes(dtype), what);
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * size_bytes(dtype);
  require(static_cast<std::uint64_t>(rows) <= memory.size_bytes / row_bytes,
          "{}: {} rows of {} bytes do not fit the {} bytes of the cl_mem from byte offset {} on", what, rows, row_bytes,
          memory.size_bytes, array.offset_bytes);
  return {memory, dtype, {rows, columns}};
}

WaitList wait_list(const Context& context, std::uint32_t count, cl_event const* events) {
  require((count == 0) == (events == nullptr), "wait list: {} events at {}", count,
          events == nullptr ? "NULL" : "an array");
  for (std::uint32_t i = 0; i < count; ++i) {
    require(events[i] != nullptr, "wait list: event {} of {} is null", i, count);
    cl_context of_event = nullptr;
    check_cl(clGetEventInfo(events[i], CL_EVENT_CONTEXT, sizeof(of_event), &of_event, nullptr), "clGetEventInfo");
    require(of_event == context.handle(), "wait list: event {} belongs to another cl_context", i);
  }
  return {events, count};
}

}  // namespace moecl::c_api
