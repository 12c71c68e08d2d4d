// A layer of the OpenCL loader (OPENCL_LAYERS) whose compiler dies of programs with TEXT in their source.
// DYING_COMPILER says how: "abort:TEXT" and "hang:TEXT" in clBuildProgram, "crash:TEXT" when a kernel of the program is
// first launched.
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>

#include "tests/opencl_layer.hpp"

namespace {

std::mutex mutex;
std::set<cl_program> doomed;

bool is_doomed(cl_program program) {
  const std::lock_guard lock(mutex);
  return doomed.count(program) != 0;
}

bool does(const char* what) {
  const char* const how = std::getenv("DYING_COMPILER");
  return how != nullptr && std::strncmp(how, what, std::strlen(what)) == 0;
}

[[noreturn]] void die(int signal) {
  std::fputs("the compiler of a test dies\n", stderr);
  std::signal(signal, SIG_DFL);  // drivers handle some signals
  std::raise(signal);
  std::abort();
}

cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts, const std::size_t* lengths,
                                      cl_int* status) {
  cl_program program = below->clCreateProgramWithSource(context, count, texts, lengths, status);
  const char* const how = std::getenv("DYING_COMPILER");
  const char* const text = how != nullptr ? std::strchr(how, ':') : nullptr;
  if (text != nullptr && std::string(texts[0], lengths[0]).find(text + 1) != std::string::npos) {
    const std::lock_guard lock(mutex);
    doomed.insert(program);
  }
  return program;
}
cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                                 void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  if (is_doomed(program) && does("abort")) die(SIGABRT);
  while (is_doomed(program) && does("hang")) sleep(1);
  return below->clBuildProgram(program, count, devices, options, notify, data);
}
cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const std::size_t* offset,
                          const std::size_t* global, const std::size_t* local, cl_uint count, const cl_event* wait,
                          cl_event* event) {
  cl_program program = nullptr;
  below->clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(program), &program, nullptr);
  if (is_doomed(program) && does("crash")) die(SIGSEGV);
  return below->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, wait, event);
}

void override_entries(cl_icd_dispatch& table) {
  table.clCreateProgramWithSource = create_program;
  table.clBuildProgram = build_program;
  table.clEnqueueNDRangeKernel = launch;
}

}  // namespace
