#pragma once
// Builds programs with the driver of this process, and reads and loads their binaries.
#include <moecl/device.hpp>

#include <string>
#include <string_view>
#include <vector>

struct _cl_program;

namespace moecl {

/// `options` are the complete options of clBuildProgram, `name` is for the message. The caller releases the program.
/// Errors: build_failed  with the driver's log
_cl_program* build_from_source(_cl_context* context, const Device& device, std::string_view name,
                               std::string_view source, const std::string& options);
/// Null if the driver does not take the binary. Then `why`, unless it is null, receives the driver's log.
_cl_program* build_from_binary(_cl_context* context, const Device& device, const std::vector<unsigned char>& binary,
                               const std::string& options, std::string* why = nullptr);
/// Cost: PoCL first generates code for work-groups of any size, in about 0.1 s a kernel
std::vector<unsigned char> binary_of(_cl_program* program, const Device& device);

}  // namespace moecl
