#pragma once
// What a process and the helper that compiles for it say to each other.
#include "runtime/compiler.hpp"

namespace moecl {

struct CompileRequest {
  std::string platform, version;
  std::size_t position = 0;  ///< of the device among those of the platform
  std::string name, source, options;
  std::vector<std::string> trials;
};

std::string message_of(const CompileRequest& request);
std::string message_of(const Compiled& answer);
/// Errors: invalid_data
CompileRequest request_from(std::string_view message);
Compiled answer_from(std::string_view message);

}  // namespace moecl
