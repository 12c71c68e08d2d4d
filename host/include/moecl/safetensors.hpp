#pragma once
#include <moecl/host_tensor.hpp>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A safetensors file. Its header is checked in full when the file is opened. Bytes of tensors are read when they are
/// asked for. The file stays open for that, also for tensors that outlive this object. Removing or replacing the file
/// has no effect. Bytes cut off the open file cannot be read any more (io_error); bytes written to it are read.
///
/// Threads:  const members may be called from several threads.
/// Source:   https://github.com/huggingface/safetensors, section "Format"
class SafetensorsFile {
 public:
  /// Errors: io_error      the path is no readable regular file
  ///         invalid_data  the header is malformed, or contradicts itself or the file's size
  static SafetensorsFile open(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const noexcept;
  /// Names of the tensors, in the order of their bytes in the file.
  std::vector<std::string> names() const;
  /// Whether the header has such a tensor.
  bool has(std::string_view name) const;
  /// Errors: invalid_data  no such tensor
  ///         unsupported   its dtype is one that moecl does not know (a file may hold such tensors beside others)
  HostTensor tensor(std::string_view name) const;
  /// The header's `__metadata__`; empty when there is none.
  const std::map<std::string, std::string>& metadata() const noexcept;

 private:
  struct State;
  explicit SafetensorsFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Writes `tensors` as one file that Hugging Face's reader accepts. The bytes go to a temporary file beside `path`,
/// which is renamed at the end. So a failure leaves no half-written file, and an older file as it was.
///
/// Wider dtypes come first in the file so that every tensor is aligned; names must be unique.
///
/// Errors: invalid_argument  a name twice, or size_bytes is not what dtype and shape give
///         io_error          the file cannot be written
void write_safetensors(const std::string& path, const std::vector<HostTensor>& tensors);

}  // namespace moecl
