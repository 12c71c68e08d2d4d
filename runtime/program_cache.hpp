#pragma once
// The disk cache as a context uses it: every failure is a log line and a miss, never an error of the caller's.
#include <moecl/context.hpp>

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

class ProgramCache {
 public:
  ProgramCache(const Context& context, const ContextOptions& options);

  std::optional<std::vector<unsigned char>> load(const ProgramKey& key) const;
  void store(const ProgramKey& key, const std::vector<unsigned char>& binary) const;

 private:
  /// A folder that cannot be used fails every program alike: the same words are logged once in a row.
  void warn(const std::string& what) const;

  const Context& context_;
  std::optional<CacheFolder> folder_;
  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  mutable std::string last_warning_;
};

}  // namespace moecl
