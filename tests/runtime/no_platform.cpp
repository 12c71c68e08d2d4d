// A program of its own, run where the ICD loader finds no platform at all.
#include <moecl/device.hpp>
#include <moecl/error.hpp>

#include <cstdio>
#include <cstring>

int main() {
  if (!moecl::enumerate_devices().empty()) return 2;
  try {
    moecl::select_devices();
  } catch (const moecl::Error& error) {
    std::puts(error.what());
    return error.code() == moecl::ErrorCode::no_device &&
                   std::strstr(error.what(), "no OpenCL platform at all") != nullptr
               ? 0
               : 3;
  }
  return 4;
}
