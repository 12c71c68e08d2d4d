#include "runtime/program_build.hpp"

#include <CL/cl.h>

#include <memory>

#include "runtime/check.hpp"
#include "runtime/nv_sm90a.hpp"

namespace moecl {
namespace {

struct Release {
  void operator()(cl_program program) const noexcept { clReleaseProgram(program); }
};
using OwnProgram = std::unique_ptr<_cl_program, Release>;

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  if (size != 0) clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

OwnProgram compile(cl_context context, const Device& device, std::string_view name, std::string_view source,
                   const std::string& options) {
  const char* text = source.data();
  const std::size_t length = source.size();
  cl_int status = CL_SUCCESS;
  OwnProgram program(clCreateProgramWithSource(context, 1, &text, &length, &status));
  check_cl(status, "clCreateProgramWithSource");
  status = clBuildProgram(program.get(), 1, &device.handle, options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS)
    throw Error(ErrorCode::build_failed,
                fmt::format("program {} with '{}' does not build on '{}': {}\n{}", name, options, device.caps.name,
                            cl_status_text(status), build_log(program.get(), device.handle)),
                status);
  return program;
}

cl_program for_sm90a(cl_context context, const std::string& compiled, std::string_view name, const Device& device,
                     const std::string& options) {
  const std::string ptx = nv_sm90a::assemble(compiled);
  std::string why;
  cl_program program = build_from_binary(context, device, {ptx.begin(), ptx.end()}, options, &why);
  if (program == nullptr)
    fail(ErrorCode::build_failed, "program {}: the driver of '{}' takes no PTX for sm_90a: {}", name, device.caps.name,
         why);
  return program;
}

}  // namespace

cl_program build_from_binary(cl_context context, const Device& device, const std::vector<unsigned char>& binary,
                             const std::string& options, std::string* why) {
  const unsigned char* data = binary.data();
  const std::size_t length = binary.size();
  cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
  OwnProgram program(clCreateProgramWithBinary(context, 1, &device.handle, &length, &data, &loaded, &status));
  if (status != CL_SUCCESS) return nullptr;
  if (loaded == CL_SUCCESS &&
      clBuildProgram(program.get(), 1, &device.handle, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
    return program.release();
  if (why != nullptr) *why = build_log(program.get(), device.handle);
  return nullptr;
}

std::vector<unsigned char> binary_of(cl_program program, const Device& device) {
  // The program was created for one device, but the driver reports a slot for each device of the context.
  cl_uint count = 0;
  check_cl(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(count), &count, nullptr), "clGetProgramInfo");
  std::vector<cl_device_id> devices(count);
  std::vector<std::size_t> sizes(count);
  check_cl(clGetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof(cl_device_id), devices.data(), nullptr),
           "clGetProgramInfo");
  check_cl(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof(std::size_t), sizes.data(), nullptr),
           "clGetProgramInfo");
  std::vector<std::vector<unsigned char>> binaries(count);
  std::vector<unsigned char*> pointers(count);
  for (cl_uint i = 0; i < count; ++i) {
    binaries[i].resize(sizes[i]);
    pointers[i] = sizes[i] != 0 ? binaries[i].data() : nullptr;
  }
  check_cl(clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof(unsigned char*), pointers.data(), nullptr),
           "clGetProgramInfo");
  for (cl_uint i = 0; i < count; ++i)
    if (devices[i] == device.handle) return std::move(binaries[i]);
  return {};
}

cl_program build_from_source(cl_context context, const Device& device, std::string_view name, std::string_view source,
                             const std::string& options) {
  OwnProgram program = compile(context, device, name, source, options);
  if (!nv_sm90a::is_meant_by(source)) return program.release();
  const std::vector<unsigned char> binary = binary_of(program.get(), device);
  const std::string ptx(binary.begin(), binary.end());
  return nv_sm90a::is_meant_by(ptx) ? for_sm90a(context, ptx, name, device, options) : program.release();
}

}  // namespace moecl
