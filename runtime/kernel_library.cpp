#include "runtime/kernel_library.hpp"

#include <CL/cl.h>
#include <xxhash.h>

#include <chrono>

#include "runtime/check.hpp"
#include "runtime/nv_sm90a.hpp"

namespace moecl {

/// One program and the lock under which it is built, so that other programs build in parallel.
struct KernelLibrary::Program {
  const Device& device;
  const ProgramSource& source;
  std::string options;
  std::mutex building;
  cl_program handle = nullptr;
  bool unsaved = false;

  std::string build_options() const {
    const bool exact = device.caps.correctly_rounded_divide;
    return (exact ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt " : "-cl-std=CL1.2 ") + options;
  }
};

struct KernelLibrary::Pool {
  cl_program program;
  std::string options, kernel;
  cl_uint arity = 0;
  std::vector<cl_kernel> idle;
  std::mutex turn{};
  Event last{};  ///< launch, once several queues take turns

  ~Pool() {
    for (cl_kernel unused : idle) clReleaseKernel(unused);
  }
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

cl_program from_source(cl_context context, const Device& device, const ProgramSource& source,
                       const std::string& options) {
  const char* text = source.text.data();
  const std::size_t length = source.text.size();
  cl_int status = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(context, 1, &text, &length, &status);
  check_cl(status, "clCreateProgramWithSource");
  status = clBuildProgram(program, 1, &device.handle, options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS) {
    const std::string log = build_log(program, device.handle);
    clReleaseProgram(program);
    throw Error(ErrorCode::build_failed,
                fmt::format("program {} with '{}' does not build on '{}': {}\n{}", source.name, options,
                            device.caps.name, cl_status_text(status), log),
                status);
  }
  return program;
}

/// Null when the driver does not take the binary back.
cl_program from_binary(cl_context context, const Device& device, const std::vector<unsigned char>& binary,
                       const std::string& options, std::string* why = nullptr) {
  const unsigned char* data = binary.data();
  const std::size_t length = binary.size();
  cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
  cl_program program = clCreateProgramWithBinary(context, 1, &device.handle, &length, &data, &loaded, &status);
  if (status != CL_SUCCESS) return nullptr;
  if (loaded == CL_SUCCESS &&
      clBuildProgram(program, 1, &device.handle, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
    return program;
  if (why != nullptr) *why = build_log(program, device.handle);
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

/// Takes over `compiled`.
cl_program for_sm90a(cl_context context, cl_program compiled, const char* name, const Device& device,
                     const std::string& options) {
  std::vector<unsigned char> binary = binary_of(compiled, device);
  clReleaseProgram(compiled);
  const std::string ptx = nv_sm90a::assemble({binary.begin(), binary.end()});
  binary.assign(ptx.begin(), ptx.end());
  std::string why;
  cl_program program = from_binary(context, device, binary, options, &why);
  if (program == nullptr)
    fail(ErrorCode::build_failed, "program {}: the driver of '{}' takes no PTX for sm_90a: {}", name, device.caps.name,
         why);
  return program;
}

cl_kernel create_kernel(cl_program program, const KernelKey& key) {
  cl_int status = CL_SUCCESS;
  cl_kernel kernel = clCreateKernel(program, key.kernel, &status);
  if (status != CL_SUCCESS) fail_cl(status, "clCreateKernel of {} in program {}", key.kernel, key.source->name);
  return kernel;
}

cl_uint arity_of(cl_kernel kernel) {
  cl_uint arity = 0;
  check_cl(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(arity), &arity, nullptr), "clGetKernelInfo");
  return arity;
}

/// PoCL (3.1 to 5.0 read) finds the compiled code of a finished launch by its address alone; entries for two widths of
/// grid share one, and with both in flight it counts down the wrong entry and aborts.
bool grids_collide(const Device& device) {
  return device.caps.platform_name.find("Portable Computing Language") != std::string::npos;
}

}  // namespace

std::size_t KernelLibrary::IdHash::operator()(const Id& id) const noexcept {
  const auto mix = [](std::uint64_t seed, std::string_view text) {
    return XXH3_64bits_withSeed(text.data(), text.size(), seed);
  };
  return mix(mix(reinterpret_cast<std::uintptr_t>(id.device) ^ reinterpret_cast<std::uintptr_t>(id.source), id.options),
             id.kernel);
}

KernelLibrary::KernelLibrary(Context& context, const ContextOptions& options)
    : context_(context), grids_collide_(grids_collide(context.devices().front())), cache_(context, options) {}

KernelLibrary::~KernelLibrary() {
  for (auto& [id, program] : programs_)
    if (program->handle != nullptr) clReleaseProgram(program->handle);
}

KernelLibrary::Program& KernelLibrary::program(const Device& device, const KernelKey& key) {
  Program* program = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = programs_.find({&device, key.source, key.options, {}}); found != programs_.end()) {
      program = found->second.get();
    } else {
      std::unique_ptr<Program> made(new Program{device, *key.source, key.options, {}});
      program = made.get();
      programs_.emplace(Id{&device, key.source, program->options, {}}, std::move(made));
    }
  }
  const std::lock_guard lock(program->building);
  if (program->handle != nullptr) return *program;
  const std::string options = program->build_options();
  if (const auto binary = cache_.load({key.source->name, key.source->text, options, &device})) {
    program->handle = from_binary(context_.handle(), device, *binary, options);
    if (program->handle != nullptr) {
      ++context_.counters().programs_from_disk;
      return *program;
    }
    context_.log(LogLevel::warning, fmt::format("program cache: the driver of '{}' refuses its own binary of {}",
                                                device.caps.name, key.source->name));
  }
  const auto start = std::chrono::steady_clock::now();
  program->handle = from_source(context_.handle(), device, *key.source, options);
  if (nv_sm90a::is_meant_by(key.source->text))
    program->handle =
        for_sm90a(context_.handle(), std::exchange(program->handle, nullptr), key.source->name, device, options);
  program->unsaved = true;
  ++context_.counters().programs_built;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  context_.log(LogLevel::info, fmt::format("built {} for '{}' in {:.0f} ms: {}", key.source->name, device.caps.name,
                                           took.count(), key.options));
  return *program;
}

void KernelLibrary::save() noexcept {
  std::vector<Program*> built;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, program] : programs_) built.push_back(program.get());
  }
  for (Program* program : built) {
    const std::lock_guard lock(program->building);
    if (!std::exchange(program->unsaved, false)) continue;
    try {
      const std::string options = program->build_options();
      cache_.store({program->source.name, program->source.text, options, &program->device},
                   binary_of(program->handle, program->device));
    } catch (const std::exception& error) {
      context_.log(LogLevel::warning, fmt::format("no binary of {}: {}", program->source.name, error.what()));
    }
  }
}

KernelLibrary::Pool& KernelLibrary::pool(const Device& device, const KernelKey& key) {
  const Program& built = program(device, key);
  cl_kernel kernel = create_kernel(built.handle, key);
  std::unique_ptr<Pool> made(new Pool{built.handle, key.options, key.kernel, 0, {kernel}});
  made->arity = arity_of(kernel);
  const std::lock_guard lock(mutex_);
  const Id id{&device, key.source, made->options, made->kernel};
  const auto [entry, added] = pools_.try_emplace(id, std::move(made));
  if (!added) entry->second->idle.push_back(std::exchange(made->idle, {}).front());
  return *entry->second;
}

KernelLibrary::Lease::Lease(KernelLibrary& library, const Device& device, const KernelKey& key) : library_(library) {
  std::unique_lock lock(library_.mutex_);
  const auto found = library_.pools_.find({&device, key.source, key.options, key.kernel});
  if (found != library_.pools_.end()) {
    pool_ = found->second.get();
  } else {
    lock.unlock();
    pool_ = &library_.pool(device, key);
    lock.lock();
  }
  if (!pool_->idle.empty()) {
    handle_ = pool_->idle.back();
    pool_->idle.pop_back();
    return;
  }
  lock.unlock();
  handle_ = create_kernel(pool_->program, key);
}

KernelLibrary::Lease::~Lease() {
  const std::lock_guard lock(library_.mutex_);
  pool_->idle.push_back(handle_);
}

std::uint32_t KernelLibrary::Lease::arity() const noexcept { return pool_->arity; }

Event* KernelLibrary::Lease::take_turn(std::unique_lock<std::mutex>& lock) const {
  if (!library_.grids_collide_) return nullptr;
  lock = std::unique_lock(pool_->turn);
  return library_.several_queues_ ? &pool_->last : nullptr;
}

void KernelLibrary::add_queue(cl_command_queue queue) {
  if (!grids_collide_) return;
  const std::lock_guard lock(mutex_);
  if (several_queues_) return;
  if (first_queue_ == nullptr) first_queue_ = queue;
  if (queue == first_queue_)
    ++first_queue_users_;
  else
    begin_turns();
}

void KernelLibrary::remove_queue(cl_command_queue queue) noexcept {
  if (!grids_collide_) return;
  const std::lock_guard lock(mutex_);
  // Its last launches may outlive it.
  if (!several_queues_ && queue == first_queue_ && --first_queue_users_ == 0) begin_turns();
}

void KernelLibrary::begin_turns() noexcept {
  several_queues_ = true;
  for (auto& [id, pool] : pools_) {
    const std::lock_guard turn(pool->turn);
    cl_event launched = nullptr;  // whatever the first queue launched while it was alone
    clEnqueueMarkerWithWaitList(first_queue_, 0, nullptr, &launched);
    pool->last = Event(launched);
  }
  clFlush(first_queue_);
}

}  // namespace moecl
