#include "runtime/program_cache.hpp"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <initializer_list>

#include "runtime/check.hpp"

namespace moecl {
namespace {

CacheKey hash(const ProgramKey& key) {
  const DeviceCaps& caps = key.device->caps;
  std::string all = fmt::format("{}\n", CacheFolder::format);
  for (const std::string_view part :
       std::initializer_list<std::string_view>{MOECL_VERSION, key.source, key.options, caps.name, caps.vendor,
                                               caps.driver_version, caps.platform_name, caps.platform_version})
    all.append(fmt::format("{}\n", part.size())).append(part);
  const XXH128_hash_t digest = XXH3_128bits(all.data(), all.size());
  return {digest.high64, digest.low64};
}

}  // namespace

ProgramCache::ProgramCache(const Context& context, const ContextOptions& options)
    : context_(context), max_bytes_(options.cache_max_bytes) {
  if (!options.disk_cache.value_or(true)) return;
  if (options.cache_dir.empty())
    context_.log(LogLevel::warning, "no disk cache of compiled programs: neither XDG_CACHE_HOME nor HOME is set");
  else
    folder_.emplace(options.cache_dir);
}

void ProgramCache::warn(const std::string& what) const {
  {
    const std::lock_guard lock(mutex_);
    if (what == last_warning_) return;
    last_warning_ = what;
  }
  context_.log(LogLevel::warning, "program cache: " + what);
}

std::optional<StoredProgram> ProgramCache::load(const ProgramKey& key) const {
  if (!folder_) return std::nullopt;
  try {
    std::optional<CacheFolder::Content> content = folder_->read(hash(key));
    if (!content) return std::nullopt;
    const nlohmann::json notes = nlohmann::json::parse(content->notes);
    return StoredProgram{std::move(content->binary), notes.at("trials"), notes.at("dead")};
  } catch (const std::exception& error) {
    warn(error.what());
    return std::nullopt;
  }
}

void ProgramCache::store(const ProgramKey& key, const StoredProgram& program) const {
  const auto& [binary, trials, dead] = program;
  if (!folder_ || (binary.empty() && dead.empty())) return;
  if (binary.size() > max_bytes_) {
    warn(fmt::format("{} has {} bytes, the whole cache at most {}", key.name, binary.size(), max_bytes_));
    return;
  }
  try {
    const nlohmann::json notes = {{"trials", trials}, {"dead", dead}};
    folder_->write(hash(key), key.name, key.device->caps.name, {notes.dump(), binary});
    folder_->prune(max_bytes_);
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

CacheFolder::Lock ProgramCache::lock(const ProgramKey& key, std::chrono::milliseconds patience) const {
  if (!folder_) return {};
  try {
    return folder_->lock(hash(key), patience);
  } catch (const std::exception& error) {
    warn(error.what());
    return {};
  }
}

std::vector<DeadProgram> dead_programs(const std::string& cache_dir, const Device& device) {
  std::vector<DeadProgram> found;
  if (cache_dir.empty()) return found;
  try {
    for (const CacheEntry& entry : CacheFolder(cache_dir).entries()) {
      const nlohmann::json notes = nlohmann::json::parse(entry.notes, nullptr, false);
      if (entry.device != device.caps.name || !notes.is_object()) continue;
      const nlohmann::json dead = notes.value("dead", nlohmann::json::object());
      for (const auto& [target, why] : dead.items()) found.push_back({entry.program, target, why.get<std::string>()});
    }
  } catch (const std::exception&) {
    found.clear();  // as the cache itself: advice
  }
  return found;
}

}  // namespace moecl
