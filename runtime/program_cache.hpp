#pragma once
// The disk cache as a context uses it: every failure is a log line and a miss, never an error of the caller's.
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

/// A program as the cache keeps it: its binary, and what became of its kernels.
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
  /// Waits while another holds the program's, no longer than `patience`; not held where there is no folder.
  CacheFolder::Lock lock(const ProgramKey& key, std::chrono::milliseconds patience) const;

 private:
  /// A folder that cannot be used fails every program alike: the same words are logged once in a row.
  void warn(const std::string& what) const;

  const Context& context_;
  std::optional<CacheFolder> folder_;
  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  mutable std::string last_warning_;
};

/// A kernel whose compiler died on a device, with any options.
struct DeadProgram {
  std::string program, target, why;  ///< `target` of its Trial; empty: no kernel of it was reached
};
/// What the folder remembers of a device by its name. Empty where it cannot be read.
std::vector<DeadProgram> dead_programs(const std::string& cache_dir, const Device& device);

}  // namespace moecl
