#pragma once
// Memory that the processes of a group share on a node, found by a name: who is there, why the group ended, and rings
// of bytes between each pair.
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

/// A rank at its place. Words of atomics, since others read them at any time.
struct SharedSlot {
  alignas(64) std::atomic<std::uint32_t> process;   ///< 0: nobody is here, or it has left
  std::atomic<std::uint32_t> came;                  ///< for which generation
  std::atomic<std::uint64_t> together;              ///< a bit for each place of that process
  std::atomic<std::uint64_t> numbered;              ///< which namespace its number is of; 0: unknown
  std::atomic<std::uint64_t> beats;                 ///< grow while the process runs
  std::array<std::atomic<std::uint64_t>, 8> phase;  ///< text
  alignas(64) std::array<std::atomic<std::uint32_t>, Link::channels> bells;
  std::array<std::atomic<std::uint32_t>, Link::channels> asleep;
};

/// One direction of a pair. Bytes [taken, written) of an endless stream are in the ring.
struct SharedRing {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
};

/// A file in memory that belongs to this user alone, in a folder that does: no other user can read it, write it or have
/// had its name before. Each process locks a byte of it for each of its places, which the system unlocks when the
/// process ends, however it does.
class GroupMemory {
 public:
  static constexpr std::int32_t most_places = 64;
  /// The members of the group from a generation on.
  struct Generation {
    std::uint32_t number;
    std::vector<std::int32_t> places;
  };

  /// Finds or makes the memory and takes the places of this process. Errors: invalid_argument  the name, or no such
  /// place, another number of places, another version of moecl, or somebody is at one; io_error, out_of_memory
  GroupMemory(const std::string& name, const std::vector<std::int32_t>& own, std::int32_t places);
  /// Leaves. The last one removes the memory.
  ~GroupMemory();
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;
  /// Takes the name away: as RankGroup::remove.
  static void remove(const std::string& name) noexcept;

  /// This process', in order.
  const std::vector<std::int32_t>& own() const noexcept { return own_; }
  std::int32_t places() const noexcept { return places_; }
  const std::string& name() const noexcept { return name_; }
  SharedSlot& slot(std::int32_t place) const noexcept { return slots_[place]; }
  SharedRing& ring(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  /// The bytes of that ring.
  std::span<std::byte> bytes(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  /// Wakes who rests there.
  void ring_bell(std::int32_t place, Link::Channel channel) const noexcept;
  void rest(std::int32_t place, Link::Channel channel, std::uint32_t heard) const noexcept;

  /// Whether the process at that place has ended. One that left has not.
  bool has_ended(std::int32_t place) const noexcept;

  /// Waits for all places, or for those that are not given up, and begins a new generation with empty rings.
  /// Errors: deadline_exceeded  some did not come in time, or the others went on without this one
  Generation assemble(bool everyone, std::chrono::milliseconds deadline);
  /// Of that generation: the first cause stays. @return  It
  std::string end(std::uint32_t generation, std::string_view cause) noexcept;
  /// Empty: it has not ended.
  std::string ended(std::uint32_t generation) const;
  /// With the other places of that process.
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
