#include "runtime/cache_folder.hpp"

#include <moecl/environment.hpp>

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "runtime/atomic_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view suffix = ".clprogram";
constexpr std::array<char, 8> magic{'m', 'o', 'e', 'c', 'l', 'C', 'L', '\n'};
constexpr std::uint32_t longest_label_bytes = 1 << 16;
/// Younger temporary files may belong to a writer that is alive.
constexpr std::chrono::hours abandoned_after{1};

/// In the machine's own byte order: a cache folder belongs to one machine.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t format, label_bytes;
  std::uint64_t key_high, key_low;
  std::uint64_t binary_bytes;
  std::uint64_t checksum;  ///< XXH3-64 of label and binary
};
static_assert(sizeof(Header) == 48);

constexpr mode_t others_write = S_IWGRP | S_IWOTH;

bool is_trusted(const struct stat& info) {
  return (info.st_uid == geteuid() || info.st_uid == 0) && (info.st_mode & others_write) == 0;
}

bool is_private_dir(const std::string& dir) {
  struct stat info {};
  return stat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && is_trusted(info);
}

/// Why other users may rename the files of a folder; empty if they may not. This user's own group counts as this user:
/// where each user has a group of their own, umask is 002, and all that they make is writable for that group.
std::string lets_others_rename(const fs::path& dir) {
  struct stat info {
  }, root{};
  if (stat(dir.c_str(), &info) != 0 || stat("/", &root) != 0) return "cannot be looked at";
  // The owner of "/" may replace everything. In a sandbox root has another number.
  if (info.st_uid != geteuid() && info.st_uid != 0 && info.st_uid != root.st_uid) return "is another user's";
  const bool others = (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && info.st_gid != getegid());
  return others && (info.st_mode & S_ISVTX) == 0 ? "lets them write without a sticky bit" : "";
}

/// A file of the folder. If somebody put a FIFO or a symbolic link there instead, opening it neither waits for the FIFO
/// nor follows the link.
class EntryFile {
 public:
  explicit EntryFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) {
    error_ = descriptor_ < 0 ? errno : 0;
    readable_ = descriptor_ >= 0 && fstat(descriptor_, &info_) == 0 && S_ISREG(info_.st_mode) && is_trusted(info_);
  }
  ~EntryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  EntryFile(const EntryFile&) = delete;
  EntryFile& operator=(const EntryFile&) = delete;

  int error() const { return error_; }         ///< errno of a file that does not open
  bool readable() const { return readable_; }  ///< a regular file of this user that others cannot write
  /// Size of the open file, whatever another process renames onto its path meanwhile.
  std::uint64_t size() const { return static_cast<std::uint64_t>(info_.st_size); }
  /// The file's first bytes, at most `most` of them.
  std::string read(std::uint64_t most) const {
    std::string bytes(std::min(most, size()), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::read(descriptor_, bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

 private:
  int descriptor_;
  int error_ = 0;
  bool readable_ = false;
  struct stat info_ {};
};

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

/// Header and label of an entry; nullopt where the bytes do not begin one of this format.
std::optional<std::pair<Header, std::string_view>> head_of(std::string_view bytes) {
  Header header{};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != magic || header.format != CacheFolder::format || header.label_bytes > longest_label_bytes ||
      header.label_bytes > bytes.size() - sizeof(header))
    return std::nullopt;
  return std::pair{header, bytes.substr(sizeof(header), header.label_bytes)};
}

/// Why the bytes are not the entry of `key`; empty where they are.
std::string damage_of(std::string_view bytes, const CacheKey& key) {
  const auto head = head_of(bytes);
  if (!head) return "its header is not of this format";
  const auto& [header, label] = *head;
  if (header.key_high != key.high || header.key_low != key.low) return "its key is another one";
  const std::uint64_t before = sizeof(header) + label.size();
  if (header.binary_bytes != bytes.size() - before)
    return fmt::format("it has {} bytes, its header says {}", bytes.size(), before + header.binary_bytes);
  return checksum(bytes.substr(sizeof(header))) != header.checksum ? "its checksum does not match" : "";
}

/// Program and device, one line each; the rest are the notes.
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

void CacheFolder::make() const {
  make_private_dirs(dir_);
  expect_private();
}

std::string CacheFolder::path_of(const CacheKey& key) const {
  return fmt::format("{}/{:016x}{:016x}{}", dir_, key.high, key.low, suffix);
}

void CacheFolder::expect_private() const {
  if (!is_private_dir(dir_))
    fail(ErrorCode::io_error, "cache folder '{}' must be a folder of this user that others cannot write", dir_);
  for (fs::path below = fs::canonical(dir_); below.has_relative_path(); below = below.parent_path())
    if (const std::string why = lets_others_rename(below.parent_path()); !why.empty())
      fail(ErrorCode::io_error, "cache folder '{}': others may rename '{}', as '{}' {}", dir_, below.string(),
           below.parent_path().string(), why);
}

std::optional<CacheFolder::Content> CacheFolder::read(const CacheKey& key) const {
  const std::string path = path_of(key);
  const EntryFile file(path);
  if (file.error() == ENOENT || file.error() == ENOTDIR) return std::nullopt;
  expect_private();
  if (file.error() != 0 && file.error() != ELOOP)  // a symbolic link
    fail(ErrorCode::io_error, "cannot open '{}': {} ({})", path, std::strerror(file.error()), file.error());
  std::error_code ignored;
  std::string reason = "it is no regular file of this user that others cannot write";
  if (file.readable()) {
    const std::string bytes = file.read(file.size());
    reason = damage_of(bytes, key);
    if (reason.empty()) {
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // a read-only cache only forgets the use
      const std::string_view label = head_of(bytes)->second;
      const auto before = static_cast<std::ptrdiff_t>(sizeof(Header) + label.size());
      return Content{std::string(split(label)[2]), {bytes.begin() + before, bytes.end()}};
    }
  }
  fs::remove(path, ignored);
  fail(ErrorCode::invalid_data, "'{}' is damaged and was removed: {}", path, reason);
}

void CacheFolder::write(const CacheKey& key, std::string_view program, std::string_view device,
                        const Content& content) const {
  const auto& [notes, binary] = content;
  make();
  const std::string label = fmt::format("{}\n{}\n{}", program, device, notes).substr(0, longest_label_bytes);
  std::string bytes = label;
  bytes.append(reinterpret_cast<const char*>(binary.data()), binary.size());
  const Header header{magic,         format,         static_cast<std::uint32_t>(label.size()), key.high, key.low,
                      binary.size(), checksum(bytes)};
  AtomicFile file(path_of(key), Durability::process);  // the checksum detects damage by a loss of power
  file.write(&header, sizeof(header));
  file.write(bytes.data(), bytes.size());
  file.commit();
}

CacheFolder::Lock::~Lock() {
  if (file_ >= 0) close(file_);
}

CacheFolder::Lock CacheFolder::lock(const CacheKey& key, std::chrono::milliseconds patience) const {
  constexpr std::chrono::milliseconds pause{5};
  make();
  Lock lock;
  const std::string path = dir_ + "/lock";
  lock.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock.file_ < 0) fail(ErrorCode::io_error, "cannot open '{}': {} ({})", path, std::strerror(errno), errno);
  // One lock file for all entries: each entry locks one byte, far behind the file's end.
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(key.low >> 1);
  byte.l_len = 1;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (fcntl(lock.file_, F_OFD_SETLK, &byte) != 0 && (errno == EAGAIN || errno == EACCES) &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(pause);
  return lock;
}

std::vector<CacheEntry> CacheFolder::entries() const {
  std::vector<CacheEntry> list;
  for (const fs::directory_entry& file : files_of(dir_)) {
    if (file.path().extension() != suffix) continue;
    CacheEntry entry;
    entry.path = file.path().string();
    // If another process removes the file meanwhile, its size and time are errors: skip it.
    std::error_code gone;
    entry.size_bytes = file.file_size(gone);
    if (gone) continue;
    entry.last_use = std::chrono::file_clock::to_sys(file.last_write_time(gone));
    if (gone) continue;
    const EntryFile opened(entry.path);
    const std::string begin = opened.readable() ? opened.read(sizeof(Header) + longest_label_bytes) : std::string();
    if (const auto head = head_of(begin)) {
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
    // If its writer renamed the file meanwhile, its time is an error, and its name may be the next writer's by now.
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
