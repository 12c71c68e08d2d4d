#pragma once
#include <stdexcept>
#include <string>

namespace moecl {

/// The kind of failure. The message says what was expected and what was found, with the numbers.
enum class ErrorCode {
  invalid_argument,   ///< a shape, dtype, option or id the caller passed is wrong
  unsupported,        ///< the request is meaningful, but this library or device cannot do it
  invalid_data,       ///< a file or its contents are malformed or contradict each other
  io_error,           ///< the operating system refused a file operation
  no_device,          ///< no usable OpenCL platform or device
  out_of_memory,      ///< the host or a device could not allocate
  build_failed,       ///< an OpenCL program did not compile; the message carries the build log
  device_error,       ///< an OpenCL call failed; `cl_status` has the raw code
  deadline_exceeded,  ///< a wait or collective ran out of time
};

/// "invalid_argument"
const char* to_string(ErrorCode code) noexcept;

/// The exception that moecl throws. std::bad_alloc and exceptions of a caller's callback pass through.
///
/// On one device invalid_argument and unsupported leave streams and outputs untouched: arguments are checked before
/// anything is enqueued. After any other error some commands may be enqueued, and outputs are undefined: keep the
/// memory passed to the call until the stream has finished. Over ranks: see Communicator and ParallelLayer.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int cl_status = 0)
      : std::runtime_error(message), code_(code), cl_status_(cl_status) {}
  ErrorCode code() const noexcept { return code_; }
  /// Raw OpenCL status of the failed call; 0 when no OpenCL call failed.
  int cl_status() const noexcept { return cl_status_; }

 private:
  ErrorCode code_;
  int cl_status_;
};

}  // namespace moecl
