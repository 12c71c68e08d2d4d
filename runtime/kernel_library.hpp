#pragma once
// The compiled programs of one context, and a pool of cl_kernel objects for each kernel.
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "runtime/compiler.hpp"
#include "runtime/kernel_key.hpp"
#include "runtime/launch_turns.hpp"
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

  /// Call this for every queue before its first launch. Some drivers do not survive launches of one kernel with
  /// different grids at the same time. There, from the second queue on, each launch of a kernel waits for the one
  /// before.
  void add_queue(_cl_command_queue* queue);
  /// Call this as often as the queue was added, before it is released.
  void remove_queue(_cl_command_queue* queue) noexcept;

  /// Compiles without launching. Errors: build_failed
  void build(const Device& device, const KernelKey& key) { program(device, key, nullptr); }

  /// Writes programs that were built from source to the disk cache, each once.
  void save() noexcept;

  /// A cl_kernel held for one launch and returned to its pool afterwards.
  class Lease {
   public:
    /// Compiles what a launch over `range` needs, unless that is done. Errors: build_failed, device_error (no such
    /// kernel in the program)
    Lease(KernelLibrary& library, const Device& device, const KernelKey& key, const NdRange& range,
          std::span<const KernelArg> args);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    _cl_kernel* handle() const noexcept { return handle_; }
    std::uint32_t arity() const noexcept;
    /// The launches of this kernel, to be changed only while `lock` is held; null where they may overlap.
    LaunchTurns* take_turn(std::unique_lock<std::mutex>& lock) const;

   private:
    KernelLibrary& library_;
    Pool* pool_ = nullptr;
    _cl_program* program_ = nullptr;
    _cl_kernel* handle_ = nullptr;
  };

 private:
  struct Program;
  /// The number of a context whose grids collide, unique among the living contexts of the process. Programs are built
  /// with this number, so that the driver tells their code from that of other contexts.
  struct Number {
    explicit Number(bool wanted) noexcept;
    ~Number();
    Number(const Number&) = delete;
    Number& operator=(const Number&) = delete;
    int value = 0;
    bool owned = false;
  };
  /// The launches of one kernel, once there are several queues.
  struct Turn {
    std::mutex mutex;
    LaunchTurns launches;
  };
  /// The key that a launch looks up, made without building a string; the views point into the Pool or Program found.
  struct Id {
    const Device* device;
    const ProgramSource* source;
    std::string_view options, kernel;
    bool operator==(const Id&) const = default;
  };
  struct IdHash {
    std::size_t operator()(const Id& id) const noexcept;
  };

  Program& find(const Device& device, const KernelKey& key);
  /// The program with the code for `trial`; null: with whatever code it has.
  _cl_program* program(const Device& device, const KernelKey& key, const Trial* trial);
  Pool& pool(const Device& device, const KernelKey& key, const Trial& trial);
  // For these the caller holds the program's lock:
  /// Errors: build_failed  the program's compiler died before
  bool has_code(const Program& program, const Trial* trial) const;
  /// Takes the program from the cache, where other processes of this user may have stored it meanwhile.
  void refresh(Program& program);
  void take_binary(Program& program);
  /// False if there is no helper, or the driver does not take the helper's binary. Errors: build_failed
  bool build_in_helper(Program& program, const Trial* trial);
  void build_here(Program& program, const Trial* trial);
  /// The caller holds `mutex_`.
  void begin_turns() noexcept;

  Context& context_;
  const bool wide_code_;      ///< wide grids have code of their own
  const bool grids_collide_;  ///< the driver fails with different grids of one kernel in flight on several queues
  const Number number_;
  std::atomic<bool> several_queues_{false};
  _cl_command_queue* first_queue_ = nullptr;
  int first_queue_users_ = 0;
  std::atomic<bool> in_helper_;
  const std::shared_ptr<Compiler> compiler_;
  const std::chrono::milliseconds compile_deadline_;
  ProgramCache cache_;
  std::mutex mutex_;
  std::unordered_map<Id, std::unique_ptr<Program>, IdHash> programs_;
  std::unordered_map<Id, std::unique_ptr<Pool>, IdHash> pools_;
  /// Without a device in the key: launches on sub-devices of one device take turns too, as they share the driver's
  /// code.
  std::unordered_map<Id, std::unique_ptr<Turn>, IdHash> turns_;
};

}  // namespace moecl
