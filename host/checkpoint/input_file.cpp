#include "host/checkpoint/input_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::uint64_t most_of_a_call = 1 << 30;  // one read on Linux transfers at most 2 GiB

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must fail the check below, not wait for a writer.
  do descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail(ErrorCode::io_error, "cannot open {}: {}", path_, std::strerror(errno));
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (error != 0) fail(ErrorCode::io_error, "cannot stat {}: {}", path_, std::strerror(error));
  fail(ErrorCode::io_error, "{} is not a regular file", path_);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* to, std::uint64_t size) const {
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t got = ::pread(descriptor_, static_cast<char*>(to) + done, std::min(size - done, most_of_a_call),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ErrorCode::io_error, "cannot read {} bytes of {} from byte {} on: {}", size - done, path_, offset + done,
           std::strerror(errno));
    if (got == 0)
      fail(ErrorCode::io_error,
           "{} has become shorter: it had {} bytes when it was opened, {} from byte {} on are missing", path_, size_,
           size - done, offset + done);
    done += static_cast<std::uint64_t>(got);
  }
}

std::string InputFile::text(std::uint64_t offset, std::uint64_t size) const {
  std::string bytes(size, '\0');
  read(offset, bytes.data(), size);
  return bytes;
}

}  // namespace moecl
