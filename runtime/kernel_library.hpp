#pragma once
// The compiled programs of one context, and a pool of cl_kernel objects for each kernel.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/kernel.hpp"
#include "runtime/program_cache.hpp"

namespace moecl {

struct KernelPool;

/// Threads: safe. A cl_kernel is used by one launch at a time (clSetKernelArg is not thread-safe on one object), so
/// each kernel has a pool of them that grows to the number of concurrent launches.
class KernelLibrary {
 public:
  KernelLibrary(Context& context, bool disk_cache, const std::string& cache_dir);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// A cl_kernel held for one launch and returned to its pool afterwards.
  class Lease {
   public:
    Lease(KernelLibrary& library, const Device& device, const KernelKey& key);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    _cl_kernel* handle() const noexcept { return handle_; }
    std::uint32_t arity() const noexcept;

   private:
    KernelPool* pool_ = nullptr;
    KernelLibrary& library_;
    _cl_kernel* handle_ = nullptr;
  };

 private:
  struct ProgramSlot;
  KernelPool& pool(const Device& device, const KernelKey& key);
  _cl_program* program(const Device& device, const KernelKey& key);

  Context& context_;
  ProgramCache cache_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<ProgramSlot>> programs_;
  std::unordered_map<std::string, std::unique_ptr<KernelPool>> pools_;
};

}  // namespace moecl
