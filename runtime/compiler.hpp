#pragma once
// Compiles programs in helper processes, where a driver's compiler may die without taking its caller along.
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

/// A launch by which a kernel is tried: PoCL and rusticl make a kernel's code when it is first launched, for its
/// local size, and PoCL for narrow and wide grids apart. The helper launches it empty: scalars are 0, and all memory is
/// a buffer of its own.
struct Trial {
  std::string_view kernel;
  std::array<std::size_t, 3> local;
  bool wide = false;  ///< an extent of the grid has `wide_grid` work-items or more
  std::span<const KernelArg> args;

  static constexpr std::size_t wide_grid = 65535;
  /// "combine/1x1x1/wide": what a driver makes code for.
  std::string target() const;
  /// The target, then its arguments, by which a helper can repeat the trial.
  std::string text() const;
};

/// Helper processes, shared by the contexts that live at the same time: as many as threads compile at once, at most one
/// a core. They end by themselves when they have nothing to do.
///
/// Threads: safe.
class Compiler {
 public:
  static std::shared_ptr<Compiler> shared();
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// Builds the program from source and tries kernels by `trials`, texts of Trial. Stops the host, no longer than
  /// `deadline` once a helper is free.
  Compiled compile(const Device& device, std::string_view name, std::string_view source, const std::string& options,
                   const std::vector<std::string>& trials, std::chrono::milliseconds deadline);

 private:
  Compiler();

  std::counting_semaphore<> free_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ChildProcess>> idle_;
};

/// What the helper program does: answers on `socket` until the other end is closed or nothing came for some seconds.
void serve_compiler(int socket);

}  // namespace moecl
