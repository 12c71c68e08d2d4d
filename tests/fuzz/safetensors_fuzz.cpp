// A safetensors file, or (first byte odd) its header's JSON up to the last '}' and the data behind it.
#include <moecl/error.hpp>
#include <moecl/safetensors.hpp>

#include <numeric>

#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moecl::fuzz::MemoryFile file;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 2 == 1) {
    const std::size_t brace = bytes.rfind('}');
    const std::uint64_t header = brace == bytes.npos ? 0 : brace;
    bytes.erase(0, 1);
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header >> (8 * i) & 0xff);
    bytes.insert(0, length);
  }
  file.assign(bytes);
  try {
    const moecl::SafetensorsFile opened = moecl::SafetensorsFile::open(file.path());
    for (const std::string& name : opened.names()) {
      try {
        const moecl::HostTensor tensor = opened.tensor(name).in_memory();
        const auto* first = reinterpret_cast<const unsigned char*>(tensor.data.memory());
        // Every byte that a tensor claims can be read.
        if (std::accumulate(first, first + tensor.size_bytes, 0U) > 255 * tensor.size_bytes) __builtin_trap();
      } catch (const moecl::Error&) {
      }
    }
  } catch (const moecl::Error&) {
  }
  return 0;
}
