// An OpenCL loader layer (OPENCL_LAYERS) that turns PoCL's CPU into a GPU of compute capability 9.0. Buffers, queues
// and events are PoCL's. Programs are PTX. The machine in this folder runs each launch while the program that enqueued
// it waits.
//
// If a launch does something that the hardware does not allow, the layer prints a message and ends the process.
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tests/opencl_layer.hpp"
#include "tests/simulated_gpu/machine.hpp"
#include "tests/simulated_gpu/opencl_compiler.hpp"

namespace {

using namespace simulated_gpu;

constexpr cl_uint compute_units = 4;
constexpr std::uint32_t most_items = 1024;
constexpr std::size_t most_shared_bytes = 227 * 1024;

struct Program {
  cl_device_id device = nullptr;
  std::string source, ptx, log;
  std::unique_ptr<Module> module;
  std::atomic<int> references = 1;
};
struct Kernel {
  Program* program;
  const Entry* entry;
  std::vector<std::uint8_t> parameters;
  std::vector<cl_mem> buffers;            // by parameter
  std::vector<std::size_t> shared_bytes;  // by parameter
};
Program* program_of(cl_program handle) { return reinterpret_cast<Program*>(handle); }
Kernel* kernel_of(cl_kernel handle) { return reinterpret_cast<Kernel*>(handle); }

cl_int give(const void* from, std::size_t size, std::size_t room, void* to, std::size_t* size_ret) {
  if (size_ret != nullptr) *size_ret = size;
  if (to == nullptr) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  std::memcpy(to, from, size);
  return CL_SUCCESS;
}
template <class T>
cl_int give(const T& value, std::size_t room, void* to, std::size_t* size_ret) {
  return give(&value, sizeof(T), room, to, size_ret);
}
cl_int give_text(const char* text, std::size_t room, void* to, std::size_t* size_ret) {
  return give(text, std::strlen(text) + 1, room, to, size_ret);
}

cl_int CL_API_CALL get_platform_info(cl_platform_id platform, cl_platform_info what, std::size_t room, void* to,
                                     std::size_t* size) {
  if (what == CL_PLATFORM_NAME) return give_text("NVIDIA, simulated", room, to, size);
  return below->clGetPlatformInfo(platform, what, room, to, size);
}
cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, std::size_t room, void* to,
                                   std::size_t* size) {
  switch (what) {
    case CL_DEVICE_NAME:
      return give_text("simulated GPU", room, to, size);
    case CL_DEVICE_VENDOR:
      return give_text("NVIDIA, simulated", room, to, size);
    case CL_DEVICE_TYPE:
      return give(cl_device_type{CL_DEVICE_TYPE_GPU}, room, to, size);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return give(cl_ulong{48 * 1024}, room, to, size);
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
      return give(cl_ulong{16 * 1024}, room, to, size);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return give(compute_units, room, to, size);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      return give(std::size_t{1024}, room, to, size);
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT:
      return give(cl_uint{1}, room, to, size);
    case CL_DEVICE_EXTENSIONS:
      return give_text(
          "cl_khr_byte_addressable_store cl_khr_fp64 cl_khr_int64_base_atomics cl_nv_device_attribute_query", room, to,
          size);
    case CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV:
      return give(cl_uint{9}, room, to, size);
    case CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV:
      return give(cl_uint{0}, room, to, size);
    default:
      return below->clGetDeviceInfo(device, what, room, to, size);
  }
}

cl_program CL_API_CALL create_program_with_source(cl_context, cl_uint count, const char** texts,
                                                  const std::size_t* lengths, cl_int* status) {
  auto* program = new Program;
  for (cl_uint i = 0; i < count; ++i)
    program->source += lengths != nullptr && lengths[i] != 0 ? std::string(texts[i], lengths[i]) : texts[i];
  if (status != nullptr) *status = CL_SUCCESS;
  return reinterpret_cast<cl_program>(program);
}
cl_program CL_API_CALL create_program_with_binary(cl_context, cl_uint, const cl_device_id*, const std::size_t* lengths,
                                                  const unsigned char** binaries, cl_int* binary_status,
                                                  cl_int* status) {
  auto* program = new Program;
  program->ptx.assign(reinterpret_cast<const char*>(binaries[0]), lengths[0]);
  if (binary_status != nullptr) *binary_status = CL_SUCCESS;
  if (status != nullptr) *status = CL_SUCCESS;
  return reinterpret_cast<cl_program>(program);
}
cl_int CL_API_CALL build_program(cl_program handle, cl_uint, const cl_device_id* devices, const char* options,
                                 void(CL_CALLBACK*)(cl_program, void*), void*) {
  Program& program = *program_of(handle);
  program.device = devices[0];
  if (program.ptx.empty()) {
    Compiled compiled = compile(program.source, options == nullptr ? "" : options);
    program.ptx = std::move(compiled.ptx), program.log = std::move(compiled.log);
    if (program.ptx.empty()) return CL_BUILD_PROGRAM_FAILURE;
  }
  try {
    program.module = std::make_unique<Module>(program.ptx);
  } catch (const std::exception& error) {
    program.log = error.what();
    return CL_BUILD_PROGRAM_FAILURE;
  }
  return CL_SUCCESS;
}
cl_int CL_API_CALL get_program_info(cl_program handle, cl_program_info what, std::size_t room, void* to,
                                    std::size_t* size) {
  const Program& program = *program_of(handle);
  switch (what) {
    case CL_PROGRAM_NUM_DEVICES:
      return give(cl_uint{1}, room, to, size);
    case CL_PROGRAM_DEVICES:
      return give(program.device, room, to, size);
    case CL_PROGRAM_BINARY_SIZES:
      return give(program.ptx.size(), room, to, size);
    case CL_PROGRAM_BINARIES:
      return give(program.ptx.data(), program.ptx.size(), program.ptx.size(), *static_cast<void**>(to), size);
    default:
      return CL_INVALID_VALUE;
  }
}
cl_int CL_API_CALL get_program_build_info(cl_program handle, cl_device_id, cl_program_build_info what, std::size_t room,
                                          void* to, std::size_t* size) {
  return what == CL_PROGRAM_BUILD_LOG ? give_text(program_of(handle)->log.c_str(), room, to, size) : CL_INVALID_VALUE;
}
cl_int CL_API_CALL retain_program(cl_program handle) {
  ++program_of(handle)->references;
  return CL_SUCCESS;
}
cl_int CL_API_CALL release_program(cl_program handle) {
  if (--program_of(handle)->references == 0) delete program_of(handle);
  return CL_SUCCESS;
}

cl_kernel CL_API_CALL create_kernel(cl_program handle, const char* name, cl_int* status) {
  Program* const program = program_of(handle);
  const auto found = program->module->entries.find(name);
  const bool exists = found != program->module->entries.end();
  if (status != nullptr) *status = exists ? CL_SUCCESS : CL_INVALID_KERNEL_NAME;
  if (!exists) return nullptr;
  retain_program(handle);
  const Entry& entry = found->second;
  return reinterpret_cast<cl_kernel>(new Kernel{program, &entry, std::vector<std::uint8_t>(entry.parameter_bytes),
                                                std::vector<cl_mem>(entry.parameters.size()),
                                                std::vector<std::size_t>(entry.parameters.size())});
}
cl_int CL_API_CALL release_kernel(cl_kernel handle) {
  release_program(reinterpret_cast<cl_program>(kernel_of(handle)->program));
  delete kernel_of(handle);
  return CL_SUCCESS;
}
cl_int CL_API_CALL get_kernel_info(cl_kernel handle, cl_kernel_info what, std::size_t room, void* to,
                                   std::size_t* size) {
  return what == CL_KERNEL_NUM_ARGS
             ? give(static_cast<cl_uint>(kernel_of(handle)->entry->parameters.size()), room, to, size)
             : CL_INVALID_VALUE;
}
cl_int CL_API_CALL get_kernel_work_group_info(cl_kernel handle, cl_device_id, cl_kernel_work_group_info what,
                                              std::size_t room, void* to, std::size_t* size) {
  const Entry& entry = *kernel_of(handle)->entry;
  switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
      return give(std::size_t{1024}, room, to, size);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
      return give(
          std::array<std::size_t, 3>{entry.required_items, entry.required_items != 0, entry.required_items != 0}, room,
          to, size);
    case CL_KERNEL_LOCAL_MEM_SIZE:
      return give(cl_ulong{entry.shared_bytes}, room, to, size);
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
      return give(std::size_t{warp_lanes}, room, to, size);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
      return give(cl_ulong{entry.local_bytes}, room, to, size);
    default:
      return CL_INVALID_VALUE;
  }
}
cl_int CL_API_CALL set_kernel_arg(cl_kernel handle, cl_uint index, std::size_t size, const void* value) {
  Kernel& kernel = *kernel_of(handle);
  if (index >= kernel.entry->parameters.size()) return CL_INVALID_ARG_INDEX;
  const Parameter& parameter = kernel.entry->parameters[index];
  if (parameter.kind == Parameter::Kind::shared) {
    kernel.shared_bytes[index] = size;
    return value == nullptr && size != 0 ? CL_SUCCESS : CL_INVALID_ARG_VALUE;
  }
  if (size != parameter.size) return CL_INVALID_ARG_SIZE;
  if (parameter.kind == Parameter::Kind::global)
    kernel.buffers[index] = value == nullptr ? nullptr : *static_cast<const cl_mem*>(value);
  else
    std::memcpy(&kernel.parameters[parameter.offset], value, size);
  return CL_SUCCESS;
}

/// The addresses of the buffers that launches used, kept as long as the buffers live. PoCL maps a buffer in place.
class KnownBuffers {
 public:
  /// For a sub-buffer, the whole buffer becomes known, too. @param queue  an idle queue
  Range find(cl_mem buffer, cl_command_queue queue) {
    cl_mem whole = nullptr;
    below->clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(whole), &whole, nullptr);
    if (whole != nullptr) find(whole, queue);
    const std::lock_guard one_maps(mapping_);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = ranges_.find(buffer); found != ranges_.end()) return found->second;
    }
    // Not under the lock of `mutex_`: this waits for the driver's threads, which may be in `forget`.
    std::size_t bytes = 0;
    below->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof(bytes), &bytes, nullptr);
    cl_int status = CL_SUCCESS;
    void* const mapped =
        below->clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, bytes, 0, nullptr, nullptr, &status);
    if (status != CL_SUCCESS) throw Fault("a buffer that cannot be mapped: " + std::to_string(status));
    below->clEnqueueUnmapMemObject(queue, buffer, mapped, 0, nullptr, nullptr);
    below->clFinish(queue);
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    below->clSetMemObjectDestructorCallback(
        buffer, [](cl_mem gone, void* known) { static_cast<KnownBuffers*>(known)->forget(gone); }, this);
    const std::lock_guard lock(mutex_);
    return ranges_[buffer] = {address, address + bytes};
  }
  void append_to(std::vector<Range>& memory) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [buffer, range] : ranges_) memory.push_back(range);
  }

 private:
  void forget(cl_mem buffer) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(buffer);
  }
  std::mutex mapping_;
  mutable std::mutex mutex_;  ///< guards ranges_ alone
  std::map<cl_mem, Range> ranges_;
};
/// Never destroyed: while the process ends, the driver's threads may still release the last reference to a buffer.
KnownBuffers& known_buffers = *new KnownBuffers;

void wait_for_queue(cl_command_queue queue, cl_uint waits, const cl_event* wait_list) {
  cl_event before;
  if (below->clEnqueueMarkerWithWaitList(queue, waits, wait_list, &before) != CL_SUCCESS)
    throw Fault("no marker in a queue");
  below->clWaitForEvents(1, &before);
  below->clReleaseEvent(before);
}

/// Returns only when the launch has ended: PoCL 3.1 fails its own assertions for native kernels, and for user events
/// that other threads set.
cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel handle, cl_uint dimensions,
                                  const std::size_t* offset, const std::size_t* global, const std::size_t* local,
                                  cl_uint waits, const cl_event* wait_list, cl_event* event) {
  const Kernel& kernel = *kernel_of(handle);
  Launch launch{kernel.entry, {1, 1, 1}, {1, 1, 1}, kernel.parameters, kernel.entry->shared_bytes, {}};
  std::uint32_t items = 1;
  for (cl_uint i = 0; i < dimensions; ++i) {
    if (local == nullptr || local[i] == 0 || global[i] % local[i] != 0 || (offset != nullptr && offset[i] != 0))
      return CL_INVALID_WORK_GROUP_SIZE;
    launch.groups[i] = static_cast<std::uint32_t>(global[i] / local[i]),
    launch.items[i] = static_cast<std::uint32_t>(local[i]);
    items *= launch.items[i];
  }
  if (items > most_items || (kernel.entry->required_items != 0 && items != kernel.entry->required_items))
    return CL_INVALID_WORK_GROUP_SIZE;
  for (std::size_t i = 0; i < kernel.entry->parameters.size(); ++i) {
    const Parameter& parameter = kernel.entry->parameters[i];
    if (parameter.kind != Parameter::Kind::shared) continue;
    launch.shared_bytes = (launch.shared_bytes + 15) / 16 * 16;
    std::memcpy(&launch.parameters[parameter.offset], &launch.shared_bytes, sizeof(std::uint64_t));
    launch.shared_bytes += kernel.shared_bytes[i];
  }
  if (launch.shared_bytes > most_shared_bytes) return CL_OUT_OF_RESOURCES;
  try {
    wait_for_queue(queue, waits, wait_list);
    for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
      if (kernel.buffers[i] == nullptr) continue;
      launch.memory.push_back(known_buffers.find(kernel.buffers[i], queue));
      std::memcpy(&launch.parameters[kernel.entry->parameters[i].offset], &launch.memory.back().begin,
                  sizeof(std::uintptr_t));
    }
    for (const auto& [name, bytes] : kernel.program->module->variables) {
      const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
      launch.memory.push_back({address, address + bytes.size()});
    }
    known_buffers.append_to(launch.memory);  // kernels may have passed addresses to each other
    const char* seed = std::getenv("SIMULATED_GPU_SEED");
    run(launch, compute_units, seed == nullptr ? 1 : static_cast<unsigned>(std::atoi(seed)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated GPU: %s\n", error.what());
    std::abort();
  }
  return event == nullptr ? CL_SUCCESS : below->clEnqueueMarkerWithWaitList(queue, 0, nullptr, event);
}

void override_entries(cl_icd_dispatch& table) {
  table.clGetPlatformInfo = get_platform_info;
  table.clGetDeviceInfo = get_device_info;
  table.clCreateProgramWithSource = create_program_with_source;
  table.clCreateProgramWithBinary = create_program_with_binary;
  table.clBuildProgram = build_program;
  table.clGetProgramInfo = get_program_info;
  table.clGetProgramBuildInfo = get_program_build_info;
  table.clRetainProgram = retain_program;
  table.clReleaseProgram = release_program;
  table.clCreateKernel = create_kernel;
  table.clReleaseKernel = release_kernel;
  table.clGetKernelInfo = get_kernel_info;
  table.clGetKernelWorkGroupInfo = get_kernel_work_group_info;
  table.clSetKernelArg = set_kernel_arg;
  table.clEnqueueNDRangeKernel = enqueue_kernel;
}

}  // namespace
