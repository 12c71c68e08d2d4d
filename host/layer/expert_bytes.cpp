#include "host/layer/expert_bytes.hpp"

#include <moecl/buffer.hpp>

namespace moecl {

std::vector<std::byte> read_bytes(StreamView stream, const std::vector<BufferView>& parts) {
  std::size_t size = 0;
  for (const BufferView& part : parts) size += part.size_bytes;
  std::vector<std::byte> bytes(size);
  std::byte* to = bytes.data();
  for (const BufferView& part : parts) {
    enqueue_read(stream, part, to, part.size_bytes);
    to += part.size_bytes;
  }
  stream.finish();
  return bytes;
}

void write_bytes(StreamView stream, const std::vector<BufferView>& parts, const std::byte* bytes) {
  for (const BufferView& part : parts) {
    enqueue_write(stream, part, bytes, part.size_bytes);
    bytes += part.size_bytes;
  }
  stream.finish();
}

}  // namespace moecl
