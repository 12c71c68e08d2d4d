#include "runtime/check.hpp"

#include <CL/cl.h>

namespace moecl {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::invalid_data:
      return "invalid_data";
    case ErrorCode::io_error:
      return "io_error";
    case ErrorCode::no_device:
      return "no_device";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::build_failed:
      return "build_failed";
    case ErrorCode::device_error:
      return "device_error";
    case ErrorCode::deadline_exceeded:
      return "deadline_exceeded";
  }
  return "unknown";
}

std::string cl_status_text(int status) {
  const char* text = nullptr;
  switch (status) {
#define MOECL_STATUS(code) \
  case code:               \
    text = #code;          \
    break
    MOECL_STATUS(CL_SUCCESS);
    MOECL_STATUS(CL_DEVICE_NOT_FOUND);
    MOECL_STATUS(CL_DEVICE_NOT_AVAILABLE);
    MOECL_STATUS(CL_COMPILER_NOT_AVAILABLE);
    MOECL_STATUS(CL_MEM_OBJECT_ALLOCATION_FAILURE);
    MOECL_STATUS(CL_OUT_OF_RESOURCES);
    MOECL_STATUS(CL_OUT_OF_HOST_MEMORY);
    MOECL_STATUS(CL_PROFILING_INFO_NOT_AVAILABLE);
    MOECL_STATUS(CL_MEM_COPY_OVERLAP);
    MOECL_STATUS(CL_BUILD_PROGRAM_FAILURE);
    MOECL_STATUS(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    MOECL_STATUS(CL_INVALID_VALUE);
    MOECL_STATUS(CL_INVALID_DEVICE);
    MOECL_STATUS(CL_INVALID_CONTEXT);
    MOECL_STATUS(CL_INVALID_QUEUE_PROPERTIES);
    MOECL_STATUS(CL_INVALID_COMMAND_QUEUE);
    MOECL_STATUS(CL_INVALID_MEM_OBJECT);
    MOECL_STATUS(CL_INVALID_BINARY);
    MOECL_STATUS(CL_INVALID_BUILD_OPTIONS);
    MOECL_STATUS(CL_INVALID_PROGRAM);
    MOECL_STATUS(CL_INVALID_PROGRAM_EXECUTABLE);
    MOECL_STATUS(CL_INVALID_KERNEL_NAME);
    MOECL_STATUS(CL_INVALID_KERNEL);
    MOECL_STATUS(CL_INVALID_ARG_INDEX);
    MOECL_STATUS(CL_INVALID_ARG_VALUE);
    MOECL_STATUS(CL_INVALID_ARG_SIZE);
    MOECL_STATUS(CL_INVALID_KERNEL_ARGS);
    MOECL_STATUS(CL_INVALID_WORK_DIMENSION);
    MOECL_STATUS(CL_INVALID_WORK_GROUP_SIZE);
    MOECL_STATUS(CL_INVALID_WORK_ITEM_SIZE);
    MOECL_STATUS(CL_INVALID_GLOBAL_OFFSET);
    MOECL_STATUS(CL_INVALID_EVENT_WAIT_LIST);
    MOECL_STATUS(CL_INVALID_EVENT);
    MOECL_STATUS(CL_INVALID_OPERATION);
    MOECL_STATUS(CL_INVALID_BUFFER_SIZE);
    MOECL_STATUS(CL_INVALID_GLOBAL_WORK_SIZE);
#undef MOECL_STATUS
    default:
      break;
  }
  return text != nullptr ? fmt::format("{} ({})", text, status) : fmt::format("OpenCL status {}", status);
}

void throw_cl(int status, const std::string& what) {
  const char* memory = nullptr;
  switch (status) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
      memory = "; the device has no memory left for a buffer";
      break;
    case CL_OUT_OF_RESOURCES:
      memory =
          "; the device ran out of memory or another resource (some drivers report an illegal access of a kernel so)";
      break;
    case CL_OUT_OF_HOST_MEMORY:
      memory = "; the host has no memory left";
      break;
    default:
      break;
  }
  throw Error(memory != nullptr ? ErrorCode::out_of_memory : ErrorCode::device_error,
              fmt::format("{} failed: {}{}", what, cl_status_text(status), memory != nullptr ? memory : ""), status);
}

}  // namespace moecl
