#include "runtime/pinned_memory.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"

namespace moecl {

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
