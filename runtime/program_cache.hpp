#pragma once
// Compiled programs on disk. Every failure is a log line and a miss, never an error of the caller's.
#include <moecl/context.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// What a compiled program depends on: source, options, device, driver and library build are all hashed into the key.
struct ProgramKey {
  std::string_view source;
  std::string_view options;
  const Device* device;
};

class ProgramCache {
 public:
  /// Empty `dir` means the default folder; see `default_dir`.
  ProgramCache(const Context& context, bool enabled, std::string dir);

  /// $XDG_CACHE_HOME/moecl/cl, else $HOME/.cache/moecl/cl; empty when neither variable is set.
  static std::string default_dir();

  std::optional<std::vector<unsigned char>> load(const ProgramKey& key) const;
  void store(const ProgramKey& key, const std::vector<unsigned char>& binary) const;

 private:
  const Context& context_;
  std::string dir_;  ///< empty: disabled
};

}  // namespace moecl
