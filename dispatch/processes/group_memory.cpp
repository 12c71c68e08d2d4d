#include "dispatch/processes/group_memory.hpp"

#include <climits>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {

struct GroupMemory::Header {
  std::array<char, 8> magic;
  std::array<char, 24> version;
  std::int32_t places;
  std::uint64_t ring_bytes;  ///< of a ring of rows
  std::uint64_t total_bytes;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> end;  ///< generation * 4, + 1 while its cause is being written, + 2 once it is written
  std::atomic<std::uint64_t> members, lost;
  std::array<char, 1024> cause;
};

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<char, 8> magic = {'m', 'o', 'e', 'c', 'l', 'g', 'r', '3'};
/// Size of a ring of notes. Notes are short; a longer one goes in parts.
constexpr std::uint64_t note_ring_bytes = 16384;
/// Sizes of a ring of rows. A ring holds some chunks, and stays in the cache of a core. All rings of a group together
/// stay below the limit that containers set for shared memory.
constexpr std::uint64_t most_ring_bytes = 1 << 20, least_ring_bytes = 64 << 10, most_bytes = 56 << 20;
/// The byte that is locked while the file is opened or removed. The bytes before it belong to the places.
constexpr std::int64_t opening = GroupMemory::most_places;

constexpr std::uint64_t up_to_page(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
constexpr std::uint64_t bit_of(std::int32_t place) { return std::uint64_t{1} << place; }

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::microseconds time) noexcept {
  const timespec limit{time.count() / 1000000, time.count() % 1000000 * 1000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct flock byte_lock(short type, std::int64_t byte) {
  struct flock lock {};
  lock.l_type = type, lock.l_whence = SEEK_SET, lock.l_start = byte, lock.l_len = 1;
  return lock;
}
bool lock_byte(int file, std::int64_t byte, bool wait) noexcept {
  struct flock lock = byte_lock(F_WRLCK, byte);
  while (fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) != 0)
    if (errno != EINTR) return false;
  return true;
}
void unlock_byte(int file, std::int64_t byte) noexcept {
  struct flock lock = byte_lock(F_UNLCK, byte);
  fcntl(file, F_OFD_SETLK, &lock);
}
/// Whether another open file description has locked the byte, even one of this process.
bool is_locked(int file, std::int64_t byte) noexcept {
  struct flock lock = byte_lock(F_WRLCK, byte);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
/// Whether `path` still names this open file, and not one that was created later.
bool has_name(int file, const std::string& path) noexcept {
  struct stat ours {};
  struct stat named {};
  return fstat(file, &ours) == 0 && lstat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}
bool anybody(int file) noexcept {
  for (std::int32_t place = 0; place < GroupMemory::most_places; ++place)
    if (is_locked(file, place)) return true;
  return false;
}

/// A folder in memory that belongs to this user alone. If another user has created a folder of that name, the next name
/// is tried; all processes of this user try the same names in the same order.
std::string own_folder() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string path = attempt == 0 ? fmt::format("/dev/shm/moecl-{}", geteuid())
                                    : fmt::format("/dev/shm/moecl-{}-{}", geteuid(), attempt);
    mkdir(path.c_str(), 0700);
    struct stat found {};
    if (lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
        (found.st_mode & 077) == 0)
      return path;
  }
  fail(ErrorCode::io_error, "join: /dev/shm has no folder that is this user's alone: {}", std::strerror(errno));
}

bool is_own(int file) noexcept {
  struct stat found {};
  return fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() && (found.st_mode & 077) == 0;
}
/// Removes files of groups whose processes were all killed. This is safe for a file that is just being created: its
/// creator holds the lock for opening, or notices that the file has lost its name.
void sweep(const std::string& folder) noexcept {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (is_own(file) && lock_byte(file, opening, false) && !anybody(file) && has_name(file, path)) unlink(path.c_str());
    close(file);
  }
}

/// The path for a group's name, which must be usable as a file name.
std::string path_of(const std::string& name) {
  require(!name.empty() && name.size() <= 200, "join: a name has 1 to 200 characters, this one {}", name.size());
  std::string file = "group-";
  for (const char c : name) {
    require(c > ' ' && c < 0x7f, "join: a name has no spaces and control characters");
    file += c == '/' ? std::string("%2f") : c == '%' ? std::string("%25") : std::string(1, c);
  }
  return own_folder() + "/" + file;
}

}  // namespace

std::size_t GroupMemory::ring_index(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept {
  const auto places = static_cast<std::size_t>(places_);
  return (static_cast<std::size_t>(channel) * places + static_cast<std::size_t>(from)) * places +
         static_cast<std::size_t>(to);
}

SharedRing& GroupMemory::ring(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept {
  return rings_[ring_index(channel, from, to)];
}

std::span<std::byte> GroupMemory::bytes(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept {
  const auto pairs = static_cast<std::size_t>(places_) * static_cast<std::size_t>(places_);
  const std::size_t index = ring_index(channel, from, to);
  if (channel == Link::notes) return {data_ + index * note_ring_bytes, note_ring_bytes};
  return {data_ + pairs * note_ring_bytes + (index - pairs) * header_->ring_bytes, header_->ring_bytes};
}

std::uint64_t GroupMemory::own_bits() const noexcept {
  std::uint64_t bits = 0;
  for (const std::int32_t place : own_) bits |= bit_of(place);
  return bits;
}

std::string GroupMemory::own_words() const { return fmt::format("rank {}", fmt::join(own_, ", ")); }

GroupMemory::GroupMemory(const std::string& name, const std::vector<std::int32_t>& own, std::int32_t places)
    : name_(name), own_(own), places_(places) {
  require(places >= 1 && places <= most_places, "join: {} ranks on a node are not in [1, {}]", places, most_places);
  require(!own.empty(), "join: this process has no rank");
  for (const std::int32_t place : own)
    require(place >= 0 && place < places, "join: rank {} is not in [0, {})", place, places);
  std::sort(own_.begin(), own_.end());
  for (std::size_t i = 1; i < own_.size(); ++i)
    require(own_[i] != own_[i - 1], "join: rank {} is named twice", own_[i]);
  path_ = path_of(name);
  sweep(path_.substr(0, path_.rfind('/')));
  open_file(path_);
  try {
    map(path_);
  } catch (...) {
    unlock_byte(file_, opening);
    unmap();
    throw;
  }
  unlock_byte(file_, opening);
}

/// Opens or creates the file and holds its lock for opening. Retries until the locked file is the one that has the
/// name.
void GroupMemory::open_file(const std::string& path) {
  for (;;) {
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0) fail(ErrorCode::io_error, "join: {}: {}", path, std::strerror(errno));
    const bool locked = lock_byte(file_, opening, true);
    if (locked && has_name(file_, path)) {
      if (is_own(file_)) return;
      close(std::exchange(file_, -1));
      fail(ErrorCode::io_error, "join: {} is not a file of this user alone", path);
    }
    close(std::exchange(file_, -1));  // it was removed meanwhile
    if (!locked) fail(ErrorCode::io_error, "join: {} cannot be locked: {}", path, std::strerror(errno));
  }
}

void GroupMemory::map(const std::string& path) {
  const auto count = static_cast<std::uint64_t>(places_), pairs = count * count;
  const std::uint64_t slots_at = up_to_page(sizeof(Header)),
                      rings_at = slots_at + up_to_page(count * sizeof(SharedSlot)),
                      data_at = rings_at + up_to_page(Link::channels * pairs * sizeof(SharedRing));
  const bool fresh = !anybody(file_);
  struct statvfs space {};
  std::uint64_t ring_bytes = most_ring_bytes;
  if (fresh) {
    std::uint64_t limit = most_bytes;
    if (statvfs("/dev/shm", &space) == 0)
      limit = std::min<std::uint64_t>(limit, std::uint64_t{space.f_bavail} * space.f_frsize / 2);
    while (ring_bytes > least_ring_bytes && pairs * ring_bytes > limit) ring_bytes /= 2;
  }
  const auto total_of = [&](std::uint64_t of_ring) { return data_at + pairs * (note_ring_bytes + of_ring); };
  if (fresh) {
    // Reserve all pages now: a page that is missing later would be a signal in the middle of a copy.
    if (ftruncate(file_, 0) != 0) fail(ErrorCode::io_error, "join: {}: {}", path, std::strerror(errno));
    if (const int problem = posix_fallocate(file_, 0, static_cast<off_t>(total_of(ring_bytes))); problem != 0)
      fail(ErrorCode::out_of_memory, "join: {} bytes of shared memory for {} ranks in {}: {}", total_of(ring_bytes),
           places_, path, std::strerror(problem));
  }
  struct stat now {};
  if (fstat(file_, &now) != 0) fail(ErrorCode::io_error, "join: {}: {}", path, std::strerror(errno));
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size < data_at && size < sizeof(Header))
    fail(ErrorCode::invalid_data, "join: '{}' is no group of moecl: {} bytes in {}", name_, size, path);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED)
    fail(ErrorCode::out_of_memory, "join: {} bytes of {}: {}", size, path, std::strerror(errno));
  mapped_bytes_ = size;
  header_ = static_cast<Header*>(memory);
  if (fresh) {
    header_->magic = magic;
    std::strncpy(header_->version.data(), MOECL_VERSION, header_->version.size() - 1);
    header_->places = places_;
    header_->ring_bytes = ring_bytes;
    header_->total_bytes = size;
  }
  const std::string version(header_->version.data(), strnlen(header_->version.data(), header_->version.size()));
  if (header_->magic != magic)
    fail(ErrorCode::invalid_argument, "join: the ranks of '{}' are of another version of moecl, this one is {}", name_,
         MOECL_VERSION);
  require(version == MOECL_VERSION, "join: the ranks of '{}' are moecl {}, {} is {}", name_, version, own_words(),
          MOECL_VERSION);
  require(header_->places == places_, "join: '{}' is a group of {} ranks, {} expects {}", name_, header_->places,
          own_words(), places_);
  const std::uint64_t of_ring = header_->ring_bytes;
  if (!std::has_single_bit(of_ring) || of_ring > most_ring_bytes || size != total_of(of_ring))
    fail(ErrorCode::invalid_data, "join: {} has {} bytes with rings of {}", path, size, of_ring);
  auto* const begin = static_cast<std::byte*>(memory);
  slots_ = reinterpret_cast<SharedSlot*>(begin + slots_at);
  rings_ = reinterpret_cast<SharedRing*>(begin + rings_at);
  data_ = begin + data_at;
  for (const std::int32_t place : own_)
    require(lock_byte(file_, place, false), "join: rank {} of '{}' is there already, process {}", place, name_,
            slot(place).process.load());
  for (const std::int32_t place : own_) {
    SharedSlot& mine = slot(place);
    mine.came = 0;
    mine.together = own_bits();
    struct stat numbers {};
    mine.numbered = stat("/proc/self/ns/pid", &numbers) == 0 ? numbers.st_ino : 0;
    mine.process = static_cast<std::uint32_t>(getpid());
  }
}

GroupMemory::~GroupMemory() {
  for (const std::int32_t place : own_) slot(place).process = 0;
  for (std::int32_t other = 0; other < places_; ++other)
    for (const Link::Channel channel : {Link::notes, Link::rows}) ring_bell(other, channel);
  lock_byte(file_, opening, true);
  for (const std::int32_t place : own_) unlock_byte(file_, place);
  if (!anybody(file_) && has_name(file_, path_)) unlink(path_.c_str());
  unlock_byte(file_, opening);
  unmap();
}

void GroupMemory::unmap() noexcept {
  if (header_ != nullptr) munmap(header_, mapped_bytes_);
  if (file_ >= 0) close(file_);
}

void GroupMemory::remove(const std::string& name) noexcept try {
  unlink(path_of(name).c_str());
} catch (const std::exception&) {  // then there is none
}

void GroupMemory::ring_bell(std::int32_t place, Link::Channel channel) const noexcept {
  SharedSlot& of = slot(place);
  of.bells[channel].fetch_add(1);
  if (of.asleep[channel].load() != 0) futex_wake(of.bells[channel]);
}

void GroupMemory::rest(std::int32_t place, Link::Channel channel, std::uint32_t heard) const noexcept {
  // A running peer answers within some microseconds, and a wake-up would take longer. So this thread polls first; it
  // yields, so that others may run meanwhile.
  constexpr std::chrono::microseconds looks_for{50};
  constexpr std::chrono::milliseconds at_most{5};
  SharedSlot& mine = slot(place);
  for (const Clock::time_point end = Clock::now() + looks_for; Clock::now() < end; std::this_thread::yield())
    if (mine.bells[channel].load(std::memory_order_acquire) != heard) return;
  mine.asleep[channel] = 1;
  if (mine.bells[channel].load() == heard) futex_wait(mine.bells[channel], heard, at_most);
  mine.asleep[channel] = 0;
}

bool GroupMemory::has_ended(std::int32_t place) const noexcept {
  // A process that leaves sets `process` to 0 before it unlocks its bytes.
  return (own_bits() & bit_of(place)) == 0 && !is_locked(file_, place) && slot(place).process != 0;
}

GroupMemory::Generation GroupMemory::assemble(bool everyone, std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  const auto come = [this](std::uint32_t generation) {
    for (const std::int32_t place : own_) slot(place).came = generation;
  };
  const std::uint64_t own = own_bits();
  std::uint32_t seen = header_->generation;
  come(seen + 1);
  for (;;) {
    if (const std::uint32_t now = header_->generation; now != seen) {
      const std::uint64_t members = header_->members;
      if ((members & own) == own) {
        Generation begun{now, {}};
        for (std::int32_t place = 0; place < places_; ++place)
          if ((members & bit_of(place)) != 0) begun.places.push_back(place);
        return begun;
      }
      if (!everyone)
        fail(ErrorCode::deadline_exceeded, "the ranks of '{}' went on without {}: they had given it up", name_,
             own_words());
      seen = now;
      come(seen + 1);
    }
    std::uint64_t wanted = all();
    if (!everyone) {
      for (std::int32_t place = 0; place < places_; ++place)
        if ((own & bit_of(place)) == 0 && !is_locked(file_, place)) give_up(place);
      wanted &= ~header_->lost.load();
      if ((wanted & own) != own)
        fail(ErrorCode::deadline_exceeded, "the ranks of '{}' have given up {}", name_, own_words());
    }
    std::string absent;
    for (std::int32_t place = 0; place < places_; ++place)
      if ((wanted & bit_of(place)) != 0 && slot(place).came != seen + 1)
        absent += fmt::format("{}{}", absent.empty() ? "" : ", ", place);
    if (absent.empty() && std::countr_zero(wanted) == own_.front()) {
      begin(wanted, seen + 1);
      continue;
    }
    if (Clock::now() >= end) {
      come(0);
      fail(ErrorCode::deadline_exceeded, "join: {} of '{}' waited {} ms for rank {}", own_words(), name_,
           deadline.count(), absent.empty() ? "0" : absent);
    }
    constexpr std::chrono::milliseconds between_looks{1};
    futex_wait(header_->generation, seen, between_looks);
  }
}

void GroupMemory::begin(std::uint64_t members, std::uint32_t generation) noexcept {
  const auto count =
      static_cast<std::size_t>(Link::channels) * static_cast<std::size_t>(places_) * static_cast<std::size_t>(places_);
  for (std::size_t ring = 0; ring < count; ++ring) rings_[ring].written = rings_[ring].taken = 0;
  header_->lost = all() & ~members;
  header_->members = members;
  header_->end = generation * 4;
  header_->generation = generation;
  futex_wake(header_->generation);
}

std::string GroupMemory::end(std::uint32_t generation, std::string_view cause) noexcept {
  std::uint32_t whole = generation * 4;
  if (header_->end.compare_exchange_strong(whole, whole + 1)) {
    const std::size_t length = std::min(cause.size(), header_->cause.size() - 1);
    std::memcpy(header_->cause.data(), cause.data(), length);
    header_->cause[length] = '\0';
    header_->end = generation * 4 + 2;
    for (std::int32_t place = 0; place < places_; ++place)
      for (const Link::Channel channel : {Link::notes, Link::rows}) ring_bell(place, channel);
  }
  try {
    return ended(generation);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

std::string GroupMemory::ended(std::uint32_t generation) const {
  // The process that writes the cause may be killed while it writes.
  for (int looks = 0; header_->end == generation * 4 + 1 && looks < 100; ++looks)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::uint32_t state = header_->end;
  if (state == generation * 4) return {};
  if (state / 4 != generation) return fmt::format("the ranks of '{}' went on without {}", name_, own_words());
  if (state % 4 == 1) return "a rank was ended while it said why it fails";
  return {header_->cause.data(), strnlen(header_->cause.data(), header_->cause.size())};
}

void GroupMemory::give_up(std::int32_t place) noexcept {
  header_->lost.fetch_or(bit_of(place) | (slot(place).together & all()));
}

}  // namespace moecl
