// A layer of the OpenCL loader (OPENCL_LAYERS) whose compiler dies. DYING_COMPILER says how, and of which text in a
// program's source: "abort:TEXT" and "hang:TEXT" in clBuildProgram, "crash:TEXT" when a kernel of it is first launched.
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>

namespace {

const cl_icd_dispatch* below;
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
  std::signal(signal, SIG_DFL);  // drivers handle some
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

}  // namespace

extern "C" {

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, std::size_t room, void* to, std::size_t* size) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  if (what != CL_LAYER_API_VERSION || (to != nullptr && room < sizeof(version))) return CL_INVALID_VALUE;
  if (size != nullptr) *size = sizeof(version);
  if (to != nullptr) std::memcpy(to, &version, sizeof(version));
  return CL_SUCCESS;
}
CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* entries_ret,
                                            const cl_icd_dispatch** layer) {
  static cl_icd_dispatch table;
  if (target == nullptr || entries_ret == nullptr || layer == nullptr || entries < sizeof(table) / sizeof(void*))
    return CL_INVALID_VALUE;
  below = target;
  table = *target;
  table.clCreateProgramWithSource = create_program;
  table.clBuildProgram = build_program;
  table.clEnqueueNDRangeKernel = launch;
  *entries_ret = sizeof(table) / sizeof(void*);
  *layer = &table;
  return CL_SUCCESS;
}
}
