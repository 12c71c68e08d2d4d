#include "runtime/kernel_library.hpp"

#include <CL/cl.h>

#include <chrono>

#include "runtime/check.hpp"

namespace moecl {

struct KernelPool {
  cl_program program = nullptr;
  const char* name = nullptr;
  cl_uint arity = 0;
  std::vector<cl_kernel> idle;
};

/// One program and the lock under which it is built, so that other programs build in parallel.
struct KernelLibrary::ProgramSlot {
  std::mutex building;
  cl_program program = nullptr;
};

namespace {

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  if (size != 0) clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

cl_program from_source(cl_context context, const Device& device, const KernelKey& key, const std::string& options) {
  const char* text = key.source->text.data();
  const std::size_t length = key.source->text.size();
  cl_int status = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(context, 1, &text, &length, &status);
  check_cl(status, "clCreateProgramWithSource");
  status = clBuildProgram(program, 1, &device.handle, options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS) {
    const std::string log = build_log(program, device.handle);
    clReleaseProgram(program);
    throw Error(ErrorCode::build_failed,
                fmt::format("program {} with '{}' does not build on '{}': {}\n{}", key.source->name, options,
                            device.caps.name, cl_status_text(status), log),
                status);
  }
  return program;
}

/// Null when the driver does not take the binary back.
cl_program from_binary(cl_context context, const Device& device, const std::vector<unsigned char>& binary,
                       const std::string& options) {
  const unsigned char* data = binary.data();
  const std::size_t length = binary.size();
  cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
  cl_program program = clCreateProgramWithBinary(context, 1, &device.handle, &length, &data, &loaded, &status);
  if (status != CL_SUCCESS) return nullptr;
  if (loaded == CL_SUCCESS &&
      clBuildProgram(program, 1, &device.handle, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
    return program;
  clReleaseProgram(program);
  return nullptr;
}

/// The program was created for one device, but the driver reports a slot for each device of the context.
std::vector<unsigned char> binary_of(cl_program program, const Device& device) {
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

}  // namespace

KernelLibrary::KernelLibrary(Context& context, bool disk_cache, const std::string& cache_dir)
    : context_(context), cache_(context, disk_cache, cache_dir.empty() ? ProgramCache::default_dir() : cache_dir) {}

KernelLibrary::~KernelLibrary() {
  for (auto& [key, pool] : pools_)
    for (cl_kernel kernel : pool->idle) clReleaseKernel(kernel);
  for (auto& [key, slot] : programs_)
    if (slot->program != nullptr) clReleaseProgram(slot->program);
}

cl_program KernelLibrary::program(const Device& device, const KernelKey& key) {
  ProgramSlot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& entry =
        programs_[fmt::format("{}\n{}\n{}", static_cast<const void*>(device.handle), key.source->name, key.options)];
    if (!entry) entry = std::make_unique<ProgramSlot>();
    slot = entry.get();
  }
  const std::lock_guard lock(slot->building);
  if (slot->program != nullptr) return slot->program;
  const std::string options = "-cl-std=CL1.2 " + key.options;
  const ProgramKey disk_key{key.source->text, options, &device};
  if (const auto binary = cache_.load(disk_key))
    slot->program = from_binary(context_.handle(), device, *binary, options);
  if (slot->program != nullptr) {
    ++context_.counters().programs_from_disk;
    return slot->program;
  }
  const auto start = std::chrono::steady_clock::now();
  slot->program = from_source(context_.handle(), device, key, options);
  ++context_.counters().programs_built;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  context_.log(LogLevel::info, fmt::format("built {} for '{}' in {:.0f} ms: {}", key.source->name, device.caps.name,
                                           took.count(), key.options));
  cache_.store(disk_key, binary_of(slot->program, device));
  return slot->program;
}

KernelPool& KernelLibrary::pool(const Device& device, const KernelKey& key) {
  const std::string id = fmt::format("{}\n{}\n{}", static_cast<const void*>(device.handle), key.kernel, key.options);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = pools_.find(id); found != pools_.end()) return *found->second;
  }
  cl_program built = program(device, key);
  const std::lock_guard lock(mutex_);
  auto& entry = pools_[id];
  if (!entry) entry = std::make_unique<KernelPool>(KernelPool{built, key.kernel, 0, {}});
  return *entry;
}

KernelLibrary::Lease::Lease(KernelLibrary& library, const Device& device, const KernelKey& key)
    : pool_(&library.pool(device, key)), library_(library) {
  const std::lock_guard lock(library_.mutex_);
  if (!pool_->idle.empty()) {
    handle_ = pool_->idle.back();
    pool_->idle.pop_back();
    return;
  }
  cl_int status = CL_SUCCESS;
  handle_ = clCreateKernel(pool_->program, pool_->name, &status);
  if (status != CL_SUCCESS)
    throw Error(ErrorCode::device_error,
                fmt::format("program {} has no kernel {}: {}", key.source->name, key.kernel, cl_status_text(status)),
                status);
  check_cl(clGetKernelInfo(handle_, CL_KERNEL_NUM_ARGS, sizeof(pool_->arity), &pool_->arity, nullptr),
           "clGetKernelInfo");
}

KernelLibrary::Lease::~Lease() {
  const std::lock_guard lock(library_.mutex_);
  pool_->idle.push_back(handle_);
}

std::uint32_t KernelLibrary::Lease::arity() const noexcept { return pool_->arity; }

}  // namespace moecl
