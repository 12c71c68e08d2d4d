#pragma once
// Programs and their binaries, as the driver of this process makes them.
#include <moecl/device.hpp>

#include <string>
#include <string_view>
#include <vector>

struct _cl_program;

namespace moecl {

/// `options` are all of clBuildProgram's. `name` is for the message. The caller releases it.
/// Errors: build_failed  with the driver's log
_cl_program* build_from_source(_cl_context* context, const Device& device, std::string_view name,
                               std::string_view source, const std::string& options);
/// Null when the driver does not take the binary, and then its log in `why` unless that is null.
_cl_program* build_from_binary(_cl_context* context, const Device& device, const std::vector<unsigned char>& binary,
                               const std::string& options, std::string* why = nullptr);
/// Cost: PoCL makes the code for work-groups of any size first, about 0.1 s a kernel
std::vector<unsigned char> binary_of(_cl_program* program, const Device& device);

}  // namespace moecl
