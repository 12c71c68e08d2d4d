#pragma once
#include <moecl/cl_handles.hpp>

#include <string_view>
#include <vector>

namespace moecl {

/// All platforms of the ICD loader; empty if there is none.
std::vector<_cl_platform_id*> platforms();
/// Root devices of every type, in the driver's order.
std::vector<_cl_device_id*> devices_of(_cl_platform_id* platform);
/// Errors: device_error  the driver does not say
bool has_extension(_cl_device_id* device, std::string_view extension);

}  // namespace moecl
