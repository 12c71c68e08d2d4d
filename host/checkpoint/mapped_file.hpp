#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moecl {

/// A whole file mapped read-only; pages are read from disk when touched.
class MappedFile {
 public:
  /// Errors: io_error  `path` is no regular file, or cannot be opened or mapped
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const noexcept { return path_; }
  const std::byte* data() const noexcept { return data_; }
  std::uint64_t size() const noexcept { return size_; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moecl
