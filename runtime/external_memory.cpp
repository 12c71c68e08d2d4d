#include "runtime/external_memory.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <CL/cl.h>

#include <array>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/check.hpp"
#include "runtime/platforms.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

// Constants of OpenCL 3.0 and cl_khr_external_memory; older headers lack them.
constexpr cl_ulong mem_handle_opaque_fd = 0x2060, mem_device_list = 0x2051;
constexpr cl_device_info device_uuid_info = 0x106A;
using CreateBuffer = cl_mem (*)(cl_context, const cl_ulong*, cl_mem_flags, std::size_t, void*, cl_int*);

/// OpenCL 3.0's clCreateBufferWithProperties; null where the ICD loader is older.
CreateBuffer create_buffer_with_properties() {
  return reinterpret_cast<CreateBuffer>(dlsym(RTLD_DEFAULT, "clCreateBufferWithProperties"));
}

using Uuid = std::array<unsigned char, 16>;

Uuid uuid_of(const Device& device) {
  Uuid uuid{};
  const cl_int status = clGetDeviceInfo(device.handle, device_uuid_info, uuid.size(), uuid.data(), nullptr);
  if (status != CL_SUCCESS)
    fail(ErrorCode::unsupported, "'{}' has no UUID: {}", device.caps.name, cl_status_text(status));
  return uuid;
}

std::string hex(const Uuid& uuid) {
  std::string digits;
  for (const unsigned char byte : uuid) digits += fmt::format("{:02x}", byte);
  return digits;
}

/// A file descriptor that is closed exactly once: a driver may take over, and close, a descriptor that it imports.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd), known_(fstat(fd, &file_) == 0) {}
  ~Descriptor() {
    struct stat now {};
    if (known_ && fstat(fd_, &now) == 0 && now.st_dev == file_.st_dev && now.st_ino == file_.st_ino) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  struct stat file_ {};
  int fd_;
  bool known_;
};

/// Only one thread of the process imports at a time. With two at once driver 580 refused imports (status 999), and
/// bytes went astray: any thread may get the number of a descriptor that the driver has closed.
std::mutex& one_importer() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

std::string device_uuid(const Device& device) { return hex(uuid_of(device)); }

/// The functions of libcuda that are used, by their published signatures.
struct ExternalMemory::Cuda {
  using Result = int;
  using Handle = unsigned long long;

  /// CUmemAllocationProp. A member, since GCC 14 crashes on a type with internal linkage where sources are compiled
  /// together.
  struct AllocationProperties {
    int type = 1;           // pinned
    int handle_types = 1;   // POSIX file descriptor
    int location_type = 1;  // a device
    int location_id = 0;
    void* win32_metadata = nullptr;
    std::array<unsigned char, 8> flags{};
  };

  explicit Cuda(const char* library) : name(library), handle(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) {
      const char* const why = dlerror();
      fail(ErrorCode::unsupported, "peer memory: {}", why != nullptr ? why : name);
    }
    load(init, "cuInit");
    load(device_get_count, "cuDeviceGetCount");
    load(device_get, "cuDeviceGet");
    load(device_get_uuid, "cuDeviceGetUuid_v2");
    load(can_access_peer, "cuDeviceCanAccessPeer");
    load(granularity, "cuMemGetAllocationGranularity");
    load(create, "cuMemCreate");
    load(export_handle, "cuMemExportToShareableHandle");
    load(release, "cuMemRelease");
    load(error_name, "cuGetErrorName");
    check(init(0), "cuInit");
  }

  template <class Function>
  void load(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    if (function == nullptr) fail(ErrorCode::unsupported, "peer memory: {} has no {}", name, symbol);
  }
  void check(Result result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    if (error_name(result, &text) != 0 || text == nullptr) text = "an unknown error";
    constexpr Result out_of_memory = 2;
    fail(result == out_of_memory ? ErrorCode::out_of_memory : ErrorCode::unsupported, "peer memory: {}: {} ({})", what,
         text, result);
  }

  /// libcuda's index of a device; OpenCL's order differs. Errors: unsupported  libcuda has no such device
  int ordinal(const Device& device) const {
    const Uuid wanted = uuid_of(device);
    int count = 0;
    check(device_get_count(&count), "cuDeviceGetCount");
    for (int i = 0; i < count; ++i) {
      int candidate = 0;
      Uuid uuid{};
      check(device_get(&candidate, i), "cuDeviceGet");
      check(device_get_uuid(uuid.data(), candidate), "cuDeviceGetUuid_v2");
      if (uuid == wanted) return candidate;
    }
    fail(ErrorCode::unsupported, "peer memory: none of the {} devices of {} is '{}' ({})", count, name,
         device.caps.name, hex(wanted));
  }

  std::string name;
  void* handle;  ///< stays loaded: the driver has threads of its own
  Result (*init)(unsigned);
  Result (*device_get_count)(int*);
  Result (*device_get)(int*, int);
  Result (*device_get_uuid)(unsigned char*, int);
  Result (*can_access_peer)(int*, int, int);
  Result (*granularity)(std::size_t*, const AllocationProperties*, int);
  Result (*create)(Handle*, std::size_t, const AllocationProperties*, unsigned long long);
  Result (*export_handle)(void*, Handle, int, unsigned long long);
  Result (*release)(Handle);
  Result (*error_name)(Result, const char**);
};

ExternalMemory::ExternalMemory(const char* library) : cuda_(std::make_unique<const Cuda>(library)) {}
ExternalMemory::~ExternalMemory() = default;

std::string ExternalMemory::reject(const Device& owner, const Device& user) const try {
  if (owner.handle == user.handle) return "one device";
  for (const Device* device : {&owner, &user})
    for (const char* extension : {"cl_khr_external_memory", "cl_khr_external_memory_opaque_fd"})
      if (!has_extension(device->handle, extension)) return fmt::format("'{}' has no {}", device->caps.name, extension);
  if (create_buffer_with_properties() == nullptr) return "the OpenCL loader has no clCreateBufferWithProperties";
  int possible = 0;
  cuda_->check(cuda_->can_access_peer(&possible, cuda_->ordinal(user), cuda_->ordinal(owner)), "cuDeviceCanAccessPeer");
  return possible != 0 ? "" : fmt::format("'{}' cannot access the memory of '{}'", user.caps.name, owner.caps.name);
} catch (const Error& error) {
  return error.what();
}

std::vector<Buffer> ExternalMemory::allocate(StreamView owner, const std::vector<StreamView>& users,
                                             std::uint64_t size_bytes) const {
  require(size_bytes >= 1 && size_bytes <= max_bytes, "peer memory: {} bytes are not in [1, {}]", size_bytes,
          max_bytes);
  const CreateBuffer create_buffer = create_buffer_with_properties();
  if (create_buffer == nullptr)
    fail(ErrorCode::unsupported, "peer memory: the OpenCL loader has no clCreateBufferWithProperties");
  const std::lock_guard lock(one_importer());
  Cuda::AllocationProperties properties;
  properties.location_id = cuda_->ordinal(*owner.device);
  std::size_t granule = 0;
  cuda_->check(cuda_->granularity(&granule, &properties, 0), "cuMemGetAllocationGranularity");
  const std::size_t allocated = quotient_up(size_bytes, granule) * granule;
  Cuda::Handle memory = 0;
  cuda_->check(cuda_->create(&memory, allocated, &properties, 0), "cuMemCreate");
  int exported = -1;
  const Cuda::Result result = cuda_->export_handle(&exported, memory, properties.handle_types, 0);
  cuda_->release(memory);  // the descriptor keeps the memory
  cuda_->check(result, "cuMemExportToShareableHandle");
  const Descriptor original(exported);

  std::vector<StreamView> importers = {owner};
  importers.insert(importers.end(), users.begin(), users.end());
  std::vector<Buffer> imported;
  for (const StreamView& stream : importers) {
    const Descriptor own(fcntl(original.get(), F_DUPFD_CLOEXEC, 0));
    const cl_ulong handles[] = {mem_handle_opaque_fd,
                                static_cast<cl_ulong>(own.get()),
                                mem_device_list,
                                reinterpret_cast<cl_ulong>(stream.device->handle),
                                0,
                                0};
    cl_int status = CL_SUCCESS;
    cl_mem buffer = create_buffer(stream.context->handle(), handles, CL_MEM_READ_WRITE, allocated, nullptr, &status);
    if (status != CL_SUCCESS)
      fail(ErrorCode::unsupported, "peer memory: '{}' imports no {} bytes of '{}': {}", stream.device->caps.name,
           allocated, owner.device->caps.name, cl_status_text(status));
    imported.push_back(Buffer::adopt(buffer, allocated));
  }
  return imported;
}

}  // namespace moecl
