#include "runtime/cache_folder.hpp"

#include <moecl/environment.hpp>

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "runtime/atomic_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view suffix = ".clprogram";
constexpr std::array<char, 8> magic{'m', 'o', 'e', 'c', 'l', 'C', 'L', '\n'};
constexpr std::uint32_t longest_label_bytes = 1 << 20;
/// Younger temporaries may belong to a writer that is alive.
constexpr std::chrono::hours abandoned_after{1};

/// In the machine's own byte order: a cache folder is of one machine.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t format, label_bytes;
  std::uint64_t key_high, key_low;
  std::uint64_t binary_bytes;
  std::uint64_t checksum;  ///< XXH3-64 of label and binary
};
static_assert(sizeof(Header) == 48);

bool is_private_dir(const std::string& dir) {
  struct stat info {};
  if (stat(dir.c_str(), &info) != 0) return false;
  return S_ISDIR(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void make_private_dirs(const fs::path& dir) {
  if (mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return;
  if (errno == ENOENT && dir.has_parent_path() && dir.parent_path() != dir) {
    make_private_dirs(dir.parent_path());
    if (mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return;
  }
  const int error = errno;
  fail(ErrorCode::io_error, "cannot create folder '{}': {} ({})", dir.string(), std::strerror(error), error);
}

std::uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

/// Header and label of an entry; nullopt where the file is none of this format.
std::optional<std::pair<Header, std::string>> read_head(std::istream& file) {
  Header header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) || header.magic != magic ||
      header.format != CacheFolder::format || header.label_bytes > longest_label_bytes)
    return std::nullopt;
  std::string label(header.label_bytes, '\0');
  if (!file.read(label.data(), static_cast<std::streamsize>(label.size()))) return std::nullopt;
  return std::pair{header, std::move(label)};
}

/// Program, device and notes: a line each, but for the notes.
std::array<std::string_view, 3> split(std::string_view label) {
  std::array<std::string_view, 3> parts;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t end = std::min(label.find('\n'), label.size());
    parts[i] = label.substr(0, end);
    label.remove_prefix(std::min(end + 1, label.size()));
  }
  parts[2] = label;
  return parts;
}

std::vector<fs::directory_entry> files_of(const std::string& dir) {
  std::error_code error;
  std::vector<fs::directory_entry> files;
  fs::directory_iterator iterator(dir, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) files.push_back(*iterator);
  if (error) fail(ErrorCode::io_error, "cannot list '{}': {}", dir, error.message());
  return files;
}

}  // namespace

std::string CacheFolder::default_dir() {
  if (const auto dir = environment("MOECL_CACHE_DIR")) return *dir;
  // The XDG base directory specification: a relative path is invalid and ignored.
  if (const auto caches = environment("XDG_CACHE_HOME"); caches && fs::path(*caches).is_absolute())
    return *caches + "/moecl/cl";
  if (const auto home = environment("HOME")) return *home + "/.cache/moecl/cl";
  return {};
}

std::string CacheFolder::path_of(const CacheKey& key) const {
  return fmt::format("{}/{:016x}{:016x}{}", dir_, key.high, key.low, suffix);
}

void CacheFolder::expect_private() const {
  if (!is_private_dir(dir_))
    fail(ErrorCode::io_error, "cache folder '{}' must be a folder of this user that others cannot write", dir_);
}

std::optional<CacheFolder::Content> CacheFolder::read(const CacheKey& key) const {
  const std::string path = path_of(key);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  expect_private();
  // The size of the file that is open, whatever another process renames onto its path meanwhile.
  const auto size = static_cast<std::uint64_t>(file.tellg());
  file.seekg(0);
  std::error_code ignored;
  const auto head = read_head(file);
  std::string reason = "its header is not of this format";
  if (head) {
    const auto& [header, label] = *head;
    const std::uint64_t before = sizeof(Header) + label.size();
    if (header.key_high != key.high || header.key_low != key.low) {
      reason = "its key is another one";
    } else if (header.binary_bytes != size - before) {
      reason = fmt::format("it has {} bytes, its header says {}", size, before + header.binary_bytes);
    } else {
      std::string bytes = label;
      bytes.resize(label.size() + header.binary_bytes);
      file.read(bytes.data() + label.size(), static_cast<std::streamsize>(header.binary_bytes));
      if (file && checksum(bytes) == header.checksum) {
        fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // a read-only cache only forgets the use
        return Content{std::string(split(label)[2]),
                       {bytes.begin() + static_cast<std::ptrdiff_t>(label.size()), bytes.end()}};
      }
      reason = "its checksum does not match";
    }
  }
  fs::remove(path, ignored);
  fail(ErrorCode::invalid_data, "'{}' is damaged and was removed: {}", path, reason);
}

void CacheFolder::write(const CacheKey& key, std::string_view program, std::string_view device,
                        const Content& content) const {
  const auto& [notes, binary] = content;
  make_private_dirs(dir_);
  expect_private();
  const std::string label = fmt::format("{}\n{}\n{}", program, device, notes).substr(0, longest_label_bytes);
  std::string bytes = label;
  bytes.append(reinterpret_cast<const char*>(binary.data()), binary.size());
  const Header header{magic,         format,         static_cast<std::uint32_t>(label.size()), key.high, key.low,
                      binary.size(), checksum(bytes)};
  AtomicFile file(path_of(key));
  file.write(&header, sizeof(header));
  file.write(bytes.data(), bytes.size());
  file.commit();
}

std::vector<CacheEntry> CacheFolder::entries() const {
  std::vector<CacheEntry> list;
  for (const fs::directory_entry& file : files_of(dir_)) {
    if (file.path().extension() != suffix) continue;
    CacheEntry entry;
    entry.path = file.path().string();
    // A file that another process removes meanwhile has size and time of an error: skip it.
    std::error_code gone;
    entry.size_bytes = file.file_size(gone);
    if (gone) continue;
    entry.last_use = std::chrono::file_clock::to_sys(file.last_write_time(gone));
    if (gone) continue;
    std::ifstream stream(entry.path, std::ios::binary);
    if (const auto head = read_head(stream)) {
      const auto [program, device, notes] = split(head->second);
      entry.program = program, entry.device = device, entry.notes = notes;
    }
    list.push_back(std::move(entry));
  }
  std::sort(list.begin(), list.end(), [](const CacheEntry& a, const CacheEntry& b) { return a.last_use < b.last_use; });
  return list;
}

std::size_t CacheFolder::prune(std::uint64_t max_bytes) const {
  std::error_code ignored;
  const auto abandoned = fs::file_time_type::clock::now() - abandoned_after;
  for (const fs::directory_entry& file : files_of(dir_)) {
    if (file.path().extension() != ".tmp" || file.path().stem().string().find(suffix) == std::string::npos) continue;
    // One that its writer renamed meanwhile has the time of an error, and its name may be the next writer's by now.
    std::error_code gone;
    const fs::file_time_type written = file.last_write_time(gone);
    if (!gone && written < abandoned) fs::remove(file.path(), ignored);
  }
  const std::vector<CacheEntry> list = entries();
  std::uint64_t total = 0;
  for (const CacheEntry& entry : list) total += entry.size_bytes;
  std::size_t removed = 0;
  for (const CacheEntry& entry : list) {
    if (total <= max_bytes) break;
    std::error_code error;
    removed += fs::remove(entry.path, error) ? 1 : 0;
    if (error) fail(ErrorCode::io_error, "cannot remove '{}': {}", entry.path, error.message());
    total -= entry.size_bytes;
  }
  return removed;
}

}  // namespace moecl
