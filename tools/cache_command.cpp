#include <moecl/error.hpp>

#include <chrono>
#include <filesystem>

#include "runtime/cache_folder.hpp"
#include "tools/commands.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

std::string age(std::chrono::system_clock::time_point last_use) {
  const auto hours =
      std::chrono::duration_cast<std::chrono::hours>(std::chrono::system_clock::now() - last_use).count();
  return hours < 48 ? fmt::format("{} h", hours) : fmt::format("{} d", hours / 24);
}

void show(const CacheFolder& folder) {
  std::vector<Row> rows = {{"program", "device", "bytes", "unused for", "file"}};
  std::uint64_t total = 0;
  for (const CacheEntry& entry : folder.entries()) {
    total += entry.size_bytes;
    const bool damaged = entry.program.empty();
    rows.push_back({damaged ? "(damaged)" : entry.program, entry.device, std::to_string(entry.size_bytes),
                    age(entry.last_use), std::filesystem::path(entry.path).stem()});
  }
  if (rows.size() > 1) fmt::print("{}", table(rows));
  fmt::print("{} programs, {} bytes in {}/*.clprogram\n", rows.size() - 1, total, folder.dir());
}

}  // namespace

void add_cache(CLI::App& app, Outcome) {
  const auto folder = [] {
    CacheFolder found(CacheFolder::default_dir());
    if (found.dir().empty())
      throw Error(ErrorCode::invalid_argument, "cache: none of MOECL_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return found;
  };
  auto max_mib = std::make_shared<std::uint64_t>(256);
  CLI::App* command = app.add_subcommand("cache", "Show, prune or clear the cache of compiled programs");
  command->require_subcommand(0, 1);
  command->add_subcommand("show", "List the programs (the default)");
  CLI::App* prune = command->add_subcommand("prune", "Remove the longest unused programs");
  prune->add_option("--max-mib", *max_mib, "until at most this much is left")
      ->check(whole_number(0))
      ->capture_default_str();
  CLI::App* clear = command->add_subcommand("clear", "Remove every program");
  command->callback([folder, prune, clear, max_mib] {
    if (prune->parsed())
      fmt::print("removed {} programs\n", folder().prune(*max_mib << 20));
    else if (clear->parsed())
      fmt::print("removed {} programs\n", folder().clear());
    else
      show(folder());
  });
}

}  // namespace moecl::cli
