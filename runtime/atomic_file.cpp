#include "runtime/atomic_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {

AtomicFile::AtomicFile(std::string path, Durability durability) : path_(std::move(path)), durability_(durability) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(ErrorCode::io_error, "cannot write '{}': it is no regular file", path_);
  int attempt = 0;
  do {
    temporary_ = fmt::format("{}.{}-{}.tmp", path_, getpid(), attempt++);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_io("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t size_bytes) {
  const auto* next = static_cast<const char*>(data);
  while (size_bytes != 0) {
    const ssize_t written = ::write(descriptor_, next, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write");
    next += written;
    size_bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  const bool durable = durability_ == Durability::power_loss;
  // Before the rename: otherwise the disk may have the new name without the file's contents.
  if (durable && fsync(descriptor_) != 0) fail_io("sync");
  // A network file system or a quota may report a failed write only here.
  if (close(std::exchange(descriptor_, -1)) != 0) fail_io("close");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("rename");
  temporary_.clear();
  if (durable) sync_folder(std::filesystem::absolute(path_).parent_path());
}

void AtomicFile::fail_io(const char* what) const {
  const int error = errno;
  fail(ErrorCode::io_error, "cannot {} '{}' for '{}': {} ({})", what, temporary_, path_, std::strerror(error), error);
}

void sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced =
      descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);  // some file systems have no such call
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!synced) fail(ErrorCode::io_error, "cannot sync folder '{}': {} ({})", folder, std::strerror(error), error);
}

}  // namespace moecl
