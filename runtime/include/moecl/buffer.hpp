#pragma once
#include <moecl/cl_handles.hpp>
#include <moecl/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace moecl {

/// A byte range of a cl_mem. Owns nothing. Lifetime: the caller keeps the cl_mem until the call that takes the view has
/// returned. After that the enqueued commands keep it, as OpenCL says. Strategy and TokensIn keep tensors longer.
struct BufferView {
  _cl_mem* handle = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  /// Errors: invalid_argument  the range reaches beyond this view
  BufferView slice(std::uint64_t offset, std::uint64_t size) const;
};

/// Owner of one reference to a cl_mem.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates device memory. With size 0 the Buffer owns nothing.
  /// Errors: invalid_argument  size above the device's largest allocation; out_of_memory
  Buffer(Context& context, std::uint64_t size_bytes);
  /// Retains the caller's cl_mem; the destructor releases it once.
  static Buffer borrow(_cl_mem* handle);
  /// Takes over the caller's reference to a cl_mem of that size.
  static Buffer adopt(_cl_mem* handle, std::uint64_t size_bytes) noexcept;

  Buffer(Buffer&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Buffer();

  _cl_mem* handle() const noexcept { return handle_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  BufferView view() const noexcept { return {handle_, 0, size_bytes_}; }

 private:
  _cl_mem* handle_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

/// Copies host memory to the device. Stops the host until `from` has been read.
void write_blocking(StreamView stream, BufferView to, const void* from, std::uint64_t size_bytes);
/// Copies device memory to the host. Stops the host until the copy is complete.
void read_blocking(StreamView stream, BufferView from, void* to, std::uint64_t size_bytes);
/// Lifetime: `from` must stay unchanged until the command completes.
void enqueue_write(StreamView stream, BufferView to, const void* from, std::uint64_t size_bytes, Submit submit = {});
/// Lifetime: `to` must stay valid until the command completes.
void enqueue_read(StreamView stream, BufferView from, void* to, std::uint64_t size_bytes, Submit submit = {});
/// Both views must have the same size and must not overlap.
void enqueue_copy(StreamView stream, BufferView from, BufferView to, Submit submit = {});
/// Fills the view with a repeated 32-bit pattern. Where its offset or size is no multiple of 4, both halves of the
/// pattern must be equal; where one is odd, all bytes.
void enqueue_fill(StreamView stream, BufferView to, std::uint32_t pattern, Submit submit = {});

}  // namespace moecl
