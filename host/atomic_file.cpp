#include "host/atomic_file.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> serial{0};
  temporary_ = fmt::format("{}.{}.{}.tmp", path_, ::getpid(), serial++);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("create");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t size_bytes) {
  const auto* next = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = ::write(fd_, next, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno("write");
    next += written;
    size_bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  // Some file systems report a full disk only when the file is closed; the descriptor is gone either way.
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    fail_errno("write");
  }
}

void AtomicFile::fail_errno(const char* what) const {
  fail(ErrorCode::io_error, "cannot {} {}: {}", what, path_, std::strerror(errno));
}

}  // namespace moecl
