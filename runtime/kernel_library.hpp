#pragma once
// The compiled programs of one context, and a pool of cl_kernel objects for each kernel.
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "runtime/kernel.hpp"
#include "runtime/program_cache.hpp"

namespace moecl {

/// Threads: safe. A cl_kernel is used by one launch at a time (clSetKernelArg is not thread-safe on one object), so
/// each kernel has a pool of them that grows to the number of concurrent launches. Programs build in parallel.
class KernelLibrary {
  struct Pool;

 public:
  KernelLibrary(Context& context, const ContextOptions& options);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// From now on several queues launch. Where the driver does not survive launches of one kernel with different grids
  /// at the same time, each waits for the one before.
  void share_between_queues(const Device& device) noexcept;

  /// Compiles without launching. Errors: build_failed
  void build(const Device& device, const KernelKey& key) { program(device, key); }

  /// Writes programs that were built from source to the disk cache, each once.
  void save() noexcept;

  /// A cl_kernel held for one launch and returned to its pool afterwards.
  class Lease {
   public:
    /// Errors: build_failed, device_error (no such kernel in the program)
    Lease(KernelLibrary& library, const Device& device, const KernelKey& key);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    _cl_kernel* handle() const noexcept { return handle_; }
    std::uint32_t arity() const noexcept;
    /// The last launch of this kernel, on whatever queue, and who may change it; null where launches may overlap.
    struct Turn;
    Turn* turn() const noexcept;

   private:
    KernelLibrary& library_;
    Pool* pool_ = nullptr;
    _cl_kernel* handle_ = nullptr;
  };

 private:
  struct Program;
  /// What a launch looks up, without building a string; the views point into the Pool or Program found.
  struct Id {
    const Device* device;
    const ProgramSource* source;
    std::string_view options, kernel;
    bool operator==(const Id&) const = default;
  };
  struct IdHash {
    std::size_t operator()(const Id& id) const noexcept;
  };

  Pool& pool(const Device& device, const KernelKey& key);
  Program& program(const Device& device, const KernelKey& key);

  Context& context_;
  std::atomic<bool> take_turns_{false};
  ProgramCache cache_;
  std::mutex mutex_;
  std::unordered_map<Id, std::unique_ptr<Program>, IdHash> programs_;
  std::unordered_map<Id, std::unique_ptr<Pool>, IdHash> pools_;
};

struct KernelLibrary::Lease::Turn {
  std::mutex mutex;
  Event last;
};

}  // namespace moecl
