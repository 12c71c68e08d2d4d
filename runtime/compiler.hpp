#pragma once
// Compiles programs in helper processes, so that a driver's compiler that crashes does not end this process.
#include <moecl/device.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <semaphore>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/compile_messages.hpp"
#include "runtime/kernel_key.hpp"

namespace moecl {

class ChildProcess;

/// A launch that tries a kernel. PoCL and rusticl generate a kernel's code at its first launch, for that local size.
/// PoCL generates separate code for narrow and wide grids. The helper's launch has no work: scalars are 0, and every
/// memory argument is a buffer of the helper's own.
struct Trial {
  std::string_view kernel;
  std::array<std::size_t, 3> local;
  bool wide = false;  ///< an extent of the grid has `wide_grid` work-items or more
  std::span<const KernelArg> args;

  static constexpr std::size_t wide_grid = 65535;
  /// "combine/1x1x1/wide": one target of a driver's code generation.
  std::string target() const;
  /// The target and its arguments, from which a helper can repeat the trial.
  std::string text() const;
};

/// Helper processes, shared by all contexts that live at the same time: one for each thread that compiles, at most one
/// a core. Idle helpers end by themselves.
///
/// Threads: safe.
class Compiler {
 public:
  static std::shared_ptr<Compiler> shared();
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// Builds the program from source and runs `trials`, texts of Trial. Stops the host, no longer than `deadline` once a
  /// helper is free.
  Compiled compile(const Device& device, std::string_view name, std::string_view source, const std::string& options,
                   const std::vector<std::string>& trials, std::chrono::milliseconds deadline);

 private:
  Compiler();

  std::counting_semaphore<> free_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ChildProcess>> idle_;
};

/// The helper program's loop: answers on `socket` until the other end is closed or no request came for some seconds.
void serve_compiler(int socket);

}  // namespace moecl
