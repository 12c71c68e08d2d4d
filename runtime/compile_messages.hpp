#pragma once
// Messages between a process and the helper that compiles for it.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

struct CompileRequest {
  std::string platform, version;
  std::size_t position = 0;  ///< of the device among those of the platform
  std::string name, source, options;
  std::vector<std::string> trials;
};

/// The result of compiling a program.
struct Compiled {
  enum class Outcome {
    built,
    refused,   ///< by the driver, with a build log
    died,      ///< the compiler, or the kernel at its first launch, crashed the helper or took too long
    stopped,   ///< a signal from outside ended the helper
    unusable,  ///< there is no helper that could compile for this device
  };
  Outcome outcome = Outcome::built;
  std::vector<unsigned char> binary;  ///< has the code of all kernels that were tried
  std::string why;                    ///< the driver's log, or how the helper ended and its last words
  int cl_status = 0;
};

std::string message_of(const CompileRequest& request);
std::string message_of(const Compiled& answer);
/// Errors: invalid_data
CompileRequest request_from(std::string_view message);
Compiled answer_from(std::string_view message);

}  // namespace moecl
