#pragma once
// The disk cache as a context uses it: a failure is a log line and a miss, never an error for the caller.
#include <moecl/context.hpp>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache_folder.hpp"

namespace moecl {

/// What a compiled program depends on, besides the library's version.
struct ProgramKey {
  std::string_view name, source, options;
  const Device* device;
};

/// A program as the cache keeps it: its binary, and the outcome for its kernels.
struct StoredProgram {
  std::vector<unsigned char> binary;        ///< empty where none was made
  std::vector<std::string> trials;          ///< texts of Trial: kernels whose code the binary has
  std::map<std::string, std::string> dead;  ///< how a compiler died, by the target of its Trial
};

class ProgramCache {
 public:
  ProgramCache(const Context& context, const ContextOptions& options);

  bool has_folder() const noexcept { return folder_.has_value(); }
  std::optional<StoredProgram> load(const ProgramKey& key) const;
  void store(const ProgramKey& key, const StoredProgram& program) const;
  /// Waits no longer than `patience` while another process holds the program's lock. Not held where there is no folder.
  CacheFolder::Lock lock(const ProgramKey& key, std::chrono::milliseconds patience) const;

 private:
  /// Logs a message unless it equals the last one: a folder that cannot be used fails in the same way for every
  /// program.
  void warn(const std::string& what) const;

  const Context& context_;
  std::optional<CacheFolder> folder_;
  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  mutable std::string last_warning_;
};

/// A kernel whose compiler died on a device, with any options.
struct DeadProgram {
  std::string program, target, why;  ///< `target` is that of its Trial; empty: no kernel was reached
};
/// The dead programs that the folder has for a device of this name. Empty if the folder cannot be read.
std::vector<DeadProgram> dead_programs(const std::string& cache_dir, const Device& device);

}  // namespace moecl
