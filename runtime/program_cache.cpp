#include "runtime/program_cache.hpp"

namespace moecl {

ProgramCache::ProgramCache(const Context& context, bool enabled, std::string dir)
    : context_(context), dir_(enabled ? std::move(dir) : std::string{}) {}

std::string ProgramCache::default_dir() { return {}; }

std::optional<std::vector<unsigned char>> ProgramCache::load(const ProgramKey&) const { return std::nullopt; }

void ProgramCache::store(const ProgramKey&, const std::vector<unsigned char>&) const {}

}  // namespace moecl
