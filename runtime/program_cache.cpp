#include "runtime/program_cache.hpp"

#include <xxhash.h>

#include <initializer_list>

#include "runtime/check.hpp"
#include "runtime/fields.hpp"

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

std::string notes_of(const StoredProgram& program) {
  std::string notes;
  add_field(notes, static_cast<long long>(program.trials.size()));
  for (const std::string& trial : program.trials) add_field(notes, trial);
  for (const auto& [target, why] : program.dead) {
    add_field(notes, target);
    add_field(notes, why);
  }
  return notes;
}

/// Errors: invalid_data
void read_notes(std::string_view notes, StoredProgram& program) {
  for (long long left = take_number(notes); left > 0; --left) program.trials.emplace_back(take_field(notes));
  while (!notes.empty()) {
    const std::string_view target = take_field(notes);
    program.dead.emplace(target, take_field(notes));
  }
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
    StoredProgram program{std::move(content->binary), {}, {}};
    read_notes(content->notes, program);
    return program;
  } catch (const std::exception& error) {
    warn(error.what());
    return std::nullopt;
  }
}

void ProgramCache::store(const ProgramKey& key, const StoredProgram& program) const {
  const std::vector<unsigned char>& binary = program.binary;
  if (!folder_ || (binary.empty() && program.dead.empty())) return;
  if (binary.size() > max_bytes_) {
    warn(fmt::format("{} has {} bytes, the whole cache at most {}", key.name, binary.size(), max_bytes_));
    return;
  }
  try {
    folder_->write(hash(key), key.name, key.device->caps.name, {notes_of(program), binary});
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
      if (entry.device != device.caps.name) continue;
      StoredProgram program;
      try {
        read_notes(entry.notes, program);
      } catch (const Error&) {
        continue;  // of a damaged file
      }
      for (const auto& [target, why] : program.dead) found.push_back({entry.program, target, why});
    }
  } catch (const std::exception&) {
    found.clear();  // like the cache itself, only advice
  }
  return found;
}

}  // namespace moecl
