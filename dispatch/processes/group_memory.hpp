#pragma once
// Memory that the processes of a group share on a node, found by a name. It holds who is present, why the group ended,
// and a ring buffer for each pair, direction and channel.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// State of the rank at one place. All words are atomic, since other processes read them at any time.
struct SharedSlot {
  alignas(64) std::atomic<std::uint32_t> process;   ///< process id; 0: never came, or left
  std::atomic<std::uint32_t> came;                  ///< generation that it came for
  std::atomic<std::uint64_t> together;              ///< mask of all places of that process
  std::atomic<std::uint64_t> numbered;              ///< pid namespace of `process`; 0: unknown
  std::atomic<std::uint64_t> beats;                 ///< heartbeat: grows while the process runs
  std::array<std::atomic<std::uint64_t>, 8> phase;  ///< text
  alignas(64) std::array<std::atomic<std::uint32_t>, Link::channels> bells;
  std::array<std::atomic<std::uint32_t>, Link::channels> asleep;
};

/// Ring buffer of one direction of a pair. It holds bytes [taken, written) of an endless stream.
struct SharedRing {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
};

/// A file in memory, in a folder; both belong to this user alone. No other user can read or write the file, or can have
/// created it under this name earlier. Each process locks one byte of the file for each of its places. The system
/// releases the locks when the process ends, however it ends.
class GroupMemory {
 public:
  static constexpr std::int32_t most_places = 64;
  /// A generation of the group, and the places of its members.
  struct Generation {
    std::uint32_t number;
    std::vector<std::int32_t> places;
  };

  /// Finds or creates the memory and occupies the places of this process. Errors: invalid_argument  a bad name or
  /// place, another number of places, another version of moecl, or a place that is occupied; io_error, out_of_memory
  GroupMemory(const std::string& name, const std::vector<std::int32_t>& own, std::int32_t places);
  /// Leaves the group. The last process removes the memory.
  ~GroupMemory();
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;
  /// Removes the name, as RankGroup::remove.
  static void remove(const std::string& name) noexcept;

  /// The places of this process, in order.
  const std::vector<std::int32_t>& own() const noexcept { return own_; }
  std::int32_t places() const noexcept { return places_; }
  const std::string& name() const noexcept { return name_; }
  SharedSlot& slot(std::int32_t place) const noexcept { return slots_[place]; }
  SharedRing& ring(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  /// The storage of that ring.
  std::span<std::byte> bytes(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  /// `ring_bell` wakes the thread that rests at a place; `rest` waits for the bell to differ from `heard`.
  void ring_bell(std::int32_t place, Link::Channel channel) const noexcept;
  void rest(std::int32_t place, Link::Channel channel, std::uint32_t heard) const noexcept;

  /// Whether the process at that place has died. A process that left on purpose has not.
  bool has_ended(std::int32_t place) const noexcept;

  /// Waits for all places (`everyone`), or for those that are not given up. Then begins a new generation with empty
  /// rings.
  /// Errors: deadline_exceeded  some did not come in time, or the others went on without this one
  Generation assemble(bool everyone, std::chrono::milliseconds deadline);
  /// Ends that generation; only the first cause is kept. @return  The kept cause
  std::string end(std::uint32_t generation, std::string_view cause) noexcept;
  /// Why that generation ended; empty: it has not.
  std::string ended(std::uint32_t generation) const;
  /// Gives up all places of the process at `place`.
  void give_up(std::int32_t place) noexcept;

 private:
  struct Header;

  void open_file(const std::string& path);
  void map(const std::string& path);
  void begin(std::uint64_t members, std::uint32_t generation) noexcept;
  std::uint64_t all() const noexcept { return places_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << places_) - 1; }
  std::size_t ring_index(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  void unmap() noexcept;

  std::uint64_t own_bits() const noexcept;
  std::string own_words() const;

  std::string name_, path_;
  std::vector<std::int32_t> own_;
  std::int32_t places_;
  int file_ = -1;
  std::size_t mapped_bytes_ = 0;
  Header* header_ = nullptr;
  SharedSlot* slots_ = nullptr;
  SharedRing* rings_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace moecl
