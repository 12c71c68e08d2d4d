#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/trace.hpp>

#include <CL/cl.h>

#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"
#include "runtime/command.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/huge_pages.hpp"

namespace moecl {
namespace {

/// Runs `enqueue(cl_event*)`, an OpenCL call, as a recorded command.
template <class Enqueue>
void transfer(StreamView stream, const char* what, std::uint64_t size_bytes, const Submit& submit, Enqueue enqueue) {
  expect_driver_process();
  submit_command(stream, submit, {what, "", "", size_bytes, 0, WorkKind::transfer},
                 [&](cl_event* event) { check_cl(enqueue(event), what); });
}

void expect_room(BufferView view, std::uint64_t size_bytes, const char* what) {
  require(size_bytes <= view.size_bytes, "{}: {} bytes asked, the buffer view has {}", what, size_bytes,
          view.size_bytes);
}

}  // namespace

BufferView BufferView::slice(std::uint64_t offset, std::uint64_t size) const {
  require(offset <= size_bytes && size <= size_bytes - offset, "slice: bytes [{}, {} + {}) leave a view of {} bytes",
          offset, offset, size, size_bytes);
  return {handle, offset_bytes + offset, size};
}

Buffer::Buffer(Context& context, std::uint64_t size) {
  if (size == 0) return;
  expect_driver_process();
  for (const Device& device : context.devices())
    require(size <= device.caps.max_alloc_bytes, "buffer: {} bytes asked, device '{}' allocates at most {}", size,
            device.caps.name, device.caps.max_alloc_bytes);
  cl_int status = CL_SUCCESS;
  handle_ = clCreateBuffer(context.handle(), CL_MEM_READ_WRITE, size, nullptr, &status);
  if (status != CL_SUCCESS)
    throw Error(ErrorCode::out_of_memory,
                fmt::format("clCreateBuffer of {} bytes failed: {}", size, cl_status_text(status)), status);
  size_bytes_ = size;
  advise_huge_pages(context, handle_, size);
}

Buffer Buffer::borrow(cl_mem handle) {
  require(handle != nullptr, "buffer: the cl_mem is null");
  std::size_t size = 0;
  check_cl(clGetMemObjectInfo(handle, CL_MEM_SIZE, sizeof(size), &size, nullptr), "clGetMemObjectInfo");
  check_cl(clRetainMemObject(handle), "clRetainMemObject");
  return adopt(handle, size);
}

Buffer Buffer::adopt(cl_mem handle, std::uint64_t size_bytes) noexcept {
  Buffer buffer;
  buffer.handle_ = handle;
  buffer.size_bytes_ = size_bytes;
  return buffer;
}

Buffer::~Buffer() {
  if (handle_ != nullptr) clReleaseMemObject(handle_);
}

void write_blocking(StreamView stream, BufferView to, const void* from, std::uint64_t size_bytes) {
  expect_room(to, size_bytes, "write");
  if (size_bytes == 0) return;
  ++stream.context->counters().host_syncs;
  expect_end(*stream.context, stream.queue);
  Event done;
  transfer(stream, "write", size_bytes, {{}, &done}, [&](cl_event* event) {
    return clEnqueueWriteBuffer(stream.queue, to.handle, CL_TRUE, to.offset_bytes, size_bytes, from, 0, nullptr, event);
  });
  expect_done(*stream.context, std::move(done));  // PoCL 3.1 returns success although a command before this one failed
}

void read_blocking(StreamView stream, BufferView from, void* to, std::uint64_t size_bytes) {
  expect_room(from, size_bytes, "read");
  if (size_bytes == 0) return;
  ++stream.context->counters().host_syncs;
  expect_end(*stream.context, stream.queue);
  Event done;
  transfer(stream, "read", size_bytes, {{}, &done}, [&](cl_event* event) {
    return clEnqueueReadBuffer(stream.queue, from.handle, CL_TRUE, from.offset_bytes, size_bytes, to, 0, nullptr,
                               event);
  });
  expect_done(*stream.context, std::move(done));
}

void enqueue_write(StreamView stream, BufferView to, const void* from, std::uint64_t size_bytes, Submit submit) {
  expect_room(to, size_bytes, "write");
  if (size_bytes == 0) return enqueue_marker(stream, submit);
  transfer(stream, "write", size_bytes, submit, [&](cl_event* event) {
    return clEnqueueWriteBuffer(stream.queue, to.handle, CL_FALSE, to.offset_bytes, size_bytes, from, submit.wait.count,
                                submit.wait.events, event);
  });
}

void enqueue_read(StreamView stream, BufferView from, void* to, std::uint64_t size_bytes, Submit submit) {
  expect_room(from, size_bytes, "read");
  if (size_bytes == 0) return enqueue_marker(stream, submit);
  transfer(stream, "read", size_bytes, submit, [&](cl_event* event) {
    return clEnqueueReadBuffer(stream.queue, from.handle, CL_FALSE, from.offset_bytes, size_bytes, to,
                               submit.wait.count, submit.wait.events, event);
  });
}

void enqueue_copy(StreamView stream, BufferView from, BufferView to, Submit submit) {
  require(from.size_bytes == to.size_bytes, "copy: {} bytes to a view of {}", from.size_bytes, to.size_bytes);
  if (from.size_bytes == 0) return enqueue_marker(stream, submit);
  transfer(stream, "copy", from.size_bytes, submit, [&](cl_event* event) {
    return clEnqueueCopyBuffer(stream.queue, from.handle, to.handle, from.offset_bytes, to.offset_bytes,
                               from.size_bytes, submit.wait.count, submit.wait.events, event);
  });
}

void enqueue_fill(StreamView stream, BufferView to, std::uint32_t pattern, Submit submit) {
  if (to.size_bytes == 0) return enqueue_marker(stream, submit);
  // OpenCL wants offset and size to be multiples of the pattern's size.
  const std::uint64_t odd = to.size_bytes | to.offset_bytes;
  const std::size_t pattern_bytes = odd % 4 == 0 ? 4 : odd % 2 == 0 ? 2 : 1;
  require(pattern_bytes == 4 || pattern % 65536 == pattern / 65536, "fill: pattern {:#x} for {} bytes at {}", pattern,
          to.size_bytes, to.offset_bytes);
  require(pattern_bytes >= 2 || pattern % 256 == pattern / 256 % 256, "fill: pattern {:#x} for {} bytes at {}", pattern,
          to.size_bytes, to.offset_bytes);
  transfer(stream, "fill", to.size_bytes, submit, [&](cl_event* event) {
    return clEnqueueFillBuffer(stream.queue, to.handle, &pattern, pattern_bytes, to.offset_bytes, to.size_bytes,
                               submit.wait.count, submit.wait.events, event);
  });
}

}  // namespace moecl
