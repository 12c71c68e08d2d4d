// Preloaded into a program: makes one call of operator new fail, or that call and all later ones. The OpenCL driver's
// own calls are not counted: how drivers handle a failure is not moecl's concern. Calls before `main` are not counted
// either. There, libraries make their tables (CLBlast makes some 8000 allocations), and no program can handle a
// failure.
//
//   FAIL_ALLOCATION=N         the Nth call fails; unset: no call fails
//   FAIL_ALLOCATIONS_AFTER=1  all later calls fail, too
//   COUNT_ALLOCATIONS=FILE    receives the number of calls
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <link.h>
#include <new>
#include <unwind.h>

namespace {

using Main = int (*)(int, char**, char**);
Main real_main = nullptr;
std::atomic<bool> begun{false};
std::atomic<std::uint64_t> counted{0};

int begin_main(int argc, char** argv, char** environment) {
  begun = true;
  return real_main(argc, argv, environment);
}

bool is_any_of(const char* path, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::strstr(path, name) != nullptr) return true;
  return false;
}

/// Stops at the first frame of the library or of a driver. The program's own frames decide nothing: a driver may use
/// the program's instances of standard library templates.
_Unwind_Reason_Code look_at(_Unwind_Context* frame, void* of_driver) {
  dl_find_object code{};
  if (_dl_find_object(reinterpret_cast<void*>(_Unwind_GetIP(frame)), &code) != 0) return _URC_NO_REASON;
  const char* path = code.dlfo_link_map->l_name;
  if (is_any_of(path, {"libmoecl"})) return _URC_END_OF_STACK;
  if (!is_any_of(path, {"pocl", "LLVM", "clang", "OpenCL", "Mesa", "gallium", "rusticl"})) return _URC_NO_REASON;
  *static_cast<bool*>(of_driver) = true;
  return _URC_END_OF_STACK;
}

bool called_by_driver() {
  bool of_driver = false;
  _Unwind_Backtrace(look_at, &of_driver);
  return of_driver;
}

std::uint64_t number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
}

bool fails() {
  static const std::uint64_t failing = number("FAIL_ALLOCATION"), after = number("FAIL_ALLOCATIONS_AFTER");
  if (!begun || called_by_driver()) return false;
  const std::uint64_t mine = ++counted;
  return failing != 0 && (mine == failing || (after != 0 && mine > failing));
}

void* allocate(std::size_t size, std::size_t alignment) {
  void* memory = fails() ? nullptr : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

struct Counter {
  ~Counter() {
    const char* path = std::getenv("COUNT_ALLOCATIONS");
    std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%llu\n", static_cast<unsigned long long>(counted.load()));
    std::fclose(file);
  }
} counter;

}  // namespace

/// Intercepts the C library's call of `main`.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*end)(),
                                 void* stack) {
  real_main = main;
  const auto next = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(begin_main, argc, argv, init, fini, end, stack);
}

void* operator new(std::size_t size) { return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
