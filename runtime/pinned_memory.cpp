#include "runtime/pinned_memory.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"
#include "runtime/platforms.hpp"

namespace moecl {
namespace {

// Constants of cl_nv_create_buffer; headers before 2023 lack them.
constexpr cl_bitfield location_host = 1U << 0U, pinned = 1U << 1U;
using CreateBufferNv = cl_mem (*)(cl_context, cl_mem_flags, cl_bitfield, std::size_t, void*, cl_int*);

/// NVIDIA's CL_MEM_ALLOC_HOST_PTR allocates on the GPU; it allocates pinned host memory only for mapping. Returns null
/// on other drivers, where the flag allocates host memory.
CreateBufferNv create_buffer_nv(const Device& device) {
  if (!has_extension(device.handle, "cl_nv_create_buffer")) return nullptr;
  return reinterpret_cast<CreateBufferNv>(
      clGetExtensionFunctionAddressForPlatform(device.platform, "clCreateBufferNV"));
}

}  // namespace

Buffer host_buffer(Context& context, std::uint64_t size_bytes) {
  if (size_bytes == 0) return {};
  for (const Device& device : context.devices())
    require(size_bytes <= device.caps.max_alloc_bytes, "buffer: {} bytes asked, device '{}' allocates at most {}",
            size_bytes, device.caps.name, device.caps.max_alloc_bytes);
  cl_int status = CL_SUCCESS;
  const CreateBufferNv create = create_buffer_nv(context.devices().front());
  cl_mem memory =
      create != nullptr
          ? create(context.handle(), CL_MEM_READ_WRITE, location_host | pinned, size_bytes, nullptr, &status)
          : clCreateBuffer(context.handle(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size_bytes, nullptr, &status);
  if (status != CL_SUCCESS)
    throw Error(ErrorCode::out_of_memory,
                fmt::format("clCreateBuffer of {} bytes of the host failed: {}", size_bytes, cl_status_text(status)),
                status);
  return Buffer::adopt(memory, size_bytes);
}

PinnedMemory::PinnedMemory(StreamView stream, std::uint64_t size_bytes)
    : stream_(Stream::borrow(*stream.context, stream.queue)), size_bytes_(size_bytes) {
  cl_int status = CL_SUCCESS;
  cl_mem memory =
      clCreateBuffer(stream.context->handle(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size_bytes, nullptr, &status);
  check_cl(status, "clCreateBuffer of pinned memory");
  buffer_ = Buffer::adopt(memory, size_bytes);
  data_ = static_cast<unsigned char*>(clEnqueueMapBuffer(stream.queue, buffer_.handle(), CL_TRUE,
                                                         CL_MAP_READ | CL_MAP_WRITE, 0, size_bytes, 0, nullptr, nullptr,
                                                         &status));
  check_cl(status, "clEnqueueMapBuffer of pinned memory");
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  clEnqueueUnmapMemObject(stream_.view().queue, buffer_.handle(), data_, 0, nullptr, nullptr);
  clFinish(stream_.view().queue);
}

}  // namespace moecl
