// Preloaded into a program: kills it as `kill -9` does, just before its Nth operation on the files of a folder, or in
// the middle of a write.
//
//   DYING_FOLDER=DIR     the folder
//   DIE_AT=N             the operation to die at; a write counts twice, as it may also end halfway. Unset: none
//   COUNT_OPERATIONS=FILE  receives the number of operations
#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

std::atomic<long> counted{0};

bool is_inside(const char* path) {
  static const char* folder = std::getenv("DYING_FOLDER");
  return folder != nullptr && path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool is_inside(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return is_inside(path);
}

/// Whether the process is to end now.
bool is_due() {
  static const char* at = std::getenv("DIE_AT");
  return ++counted == (at != nullptr ? std::atol(at) : 0);
}

void die() { kill(getpid(), SIGKILL); }

template <class File>
void step(File file) {
  if (is_inside(file) && is_due()) die();
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct Counter {
  ~Counter() {
    const char* path = std::getenv("COUNT_OPERATIONS");
    std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%ld\n", counted.load());
    std::fclose(file);
  }
} counter;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  step(path);
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  const auto real = next<ssize_t(int, const void*, size_t)>("write");
  if (is_inside(descriptor)) {
    if (is_due()) die();
    if (is_due()) {
      real(descriptor, data, size / 2);
      die();
    }
  }
  return real(descriptor, data, size);
}

int close(int descriptor) {
  step(descriptor);
  return next<int(int)>("close")(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  step(to);
  return next<int(const char*, const char*)>("rename")(from, to);
}

int unlink(const char* path) noexcept {
  step(path);
  return next<int(const char*)>("unlink")(path);
}

int remove(const char* path) noexcept {
  step(path);
  return next<int(const char*)>("remove")(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  step(path);
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}

int utimensat(int at, const char* path, const timespec times[2], int flags) noexcept {
  step(path);
  return next<int(int, const char*, const timespec*, int)>("utimensat")(at, path, times, flags);
}
}
