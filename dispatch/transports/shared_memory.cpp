#include "dispatch/transports/shared_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sys/uio.h>
#include <unistd.h>

#include "dispatch/processes/group_memory.hpp"
#include "dispatch/transports/transport.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

using Clock = std::chrono::steady_clock;

/// What this rank knows of a peer. The entry of this rank itself is unused.
struct Peer {
  std::uint32_t process = 0;
  bool may_be_read = false;
  std::uint64_t beats = 0;  ///< last heartbeat that was seen
  /// Time since that heartbeat, not counting time in which this process itself did not run.
  std::atomic<std::chrono::microseconds> silent{std::chrono::microseconds(0)};
};

class SharedMemoryLink final : public Link {
 public:
  SharedMemoryLink(std::shared_ptr<GroupMemory> memory, GroupMemory::Generation generation, std::int32_t own,
                   std::chrono::milliseconds deadline)
      : memory_(std::move(memory)),
        generation_(std::move(generation)),
        own_(own),
        rank_(static_cast<std::int32_t>(std::find(generation_.places.begin(), generation_.places.end(), own) -
                                        generation_.places.begin())),
        most_silent_(deadline * 3 / 4),
        peers_(generation_.places.size()),
        looked_(Clock::now()) {
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      const SharedSlot& slot = memory_->slot(generation_.places[peer]);
      peers_[peer].process = slot.process;
      // In another pid namespace the number names another process.
      const std::uint64_t here = memory_->slot(own_).numbered;
      peers_[peer].may_be_read = here != 0 && slot.numbered == here;
      peers_[peer].beats = slot.beats;
    }
  }

  TransportKind kind(std::int32_t /*from*/, std::int32_t /*to*/) const noexcept override {
    return TransportKind::shared_memory;
  }
  std::int32_t rank() const noexcept override { return rank_; }
  std::int32_t size() const noexcept override { return static_cast<std::int32_t>(generation_.places.size()); }
  const std::vector<std::int32_t>& places() const noexcept override { return generation_.places; }

  std::span<std::byte> room(Channel channel, std::int32_t peer) override {
    const SharedRing& ring = memory_->ring(channel, own_, place(peer));
    const std::span<std::byte> bytes = memory_->bytes(channel, own_, place(peer));
    const std::uint64_t written = ring.written.load(std::memory_order_relaxed),
                        used = written - ring.taken.load(std::memory_order_acquire);
    expect_sane(used, bytes.size(), peer);
    return part(bytes, written, bytes.size() - used);
  }
  void send(Channel channel, std::int32_t peer, std::size_t bytes) override {
    memory_->ring(channel, own_, place(peer)).written.fetch_add(bytes, std::memory_order_release);
    memory_->ring_bell(place(peer), channel);
  }
  std::span<const std::byte> arrived(Channel channel, std::int32_t peer) override {
    const SharedRing& ring = memory_->ring(channel, place(peer), own_);
    const std::span<std::byte> bytes = memory_->bytes(channel, place(peer), own_);
    const std::uint64_t taken = ring.taken.load(std::memory_order_relaxed),
                        there = ring.written.load(std::memory_order_acquire) - taken;
    expect_sane(there, bytes.size(), peer);
    return part(bytes, taken, there);
  }
  void take(Channel channel, std::int32_t peer, std::size_t bytes) override {
    memory_->ring(channel, place(peer), own_).taken.fetch_add(bytes, std::memory_order_release);
    memory_->ring_bell(place(peer), channel);
  }
  bool may_read(std::int32_t peer) const noexcept override {
    return peers_[static_cast<std::size_t>(peer)].may_be_read;
  }
  bool read(std::int32_t peer, std::uint64_t address, std::span<std::byte> to) override {
    Peer& of = peers_[static_cast<std::size_t>(peer)];
    while (!to.empty() && of.may_be_read) {
      const iovec here{to.data(), to.size()},
          there{reinterpret_cast<void*>(address), to.size()};  // NOLINT(performance-no-int-to-ptr): the peer's
      const ssize_t got = process_vm_readv(static_cast<pid_t>(of.process), &here, 1, &there, 1, 0);
      of.may_be_read = got > 0;  // otherwise the read is not allowed, or the address is memory of a device
      if (got <= 0) break;
      address += static_cast<std::uint64_t>(got);
      to = to.subspan(static_cast<std::size_t>(got));
    }
    return to.empty();
  }
  std::uint32_t bell(Channel channel) noexcept override {
    return memory_->slot(own_).bells[channel].load(std::memory_order_acquire);
  }
  void rest(Channel channel, std::uint32_t heard) noexcept override { memory_->rest(own_, channel, heard); }

  void in_phase(std::string_view what) noexcept override {
    auto& words = memory_->slot(own_).phase;
    std::array<char, sizeof(words)> text{};
    std::memcpy(text.data(), what.data(), std::min(what.size(), text.size() - 1));
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i * sizeof(word), sizeof(word));
      words[i].store(word, std::memory_order_relaxed);
    }
  }
  std::string describe(std::int32_t peer) const override {
    const auto& words = memory_->slot(place(peer)).phase;
    std::array<char, sizeof(words) + 1> text{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint64_t word = words[i].load(std::memory_order_relaxed);
      std::memcpy(text.data() + i * sizeof(word), &word, sizeof(word));
    }
    return fmt::format("rank {} (process {}) {}", peer, peers_[static_cast<std::size_t>(peer)].process,
                       text[0] != '\0' ? text.data() : "before the first exchange");
  }
  bool has_left(std::int32_t peer) const noexcept override { return memory_->slot(place(peer)).process == 0; }
  std::vector<std::int32_t> silent() const override {
    std::vector<std::chrono::microseconds> times;
    for (const Peer& peer : peers_) times.push_back(peer.silent);
    return far_more_silent(times, most_silent_);
  }
  void give_up(const std::vector<std::int32_t>& peers) noexcept override {
    for (const std::int32_t peer : peers) memory_->give_up(place(peer));
  }
  std::string end(std::string_view cause) override { return memory_->end(generation_.number, cause); }

  std::string ended() const override { return memory_->ended(generation_.number); }

  std::string look() override {
    memory_->slot(own_).beats.fetch_add(1, std::memory_order_relaxed);
    if (std::string cause = memory_->ended(generation_.number); !cause.empty()) return cause;
    // Limits the silence that one call can add: a machine that stood still has not heard anybody meanwhile.
    constexpr std::chrono::microseconds longest_pause{50000};
    const auto now = Clock::now();
    const auto ran = std::min(std::chrono::duration_cast<std::chrono::microseconds>(now - looked_), longest_pause);
    looked_ = now;
    for (std::int32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      Peer& of = peers_[static_cast<std::size_t>(peer)];
      const SharedSlot& slot = memory_->slot(place(peer));
      const std::uint32_t process = slot.process;
      if (process == 0) continue;  // it has left: only a rank that waits for it fails
      if (process != of.process || memory_->has_ended(place(peer))) {
        give_up({peer});
        return end(fmt::format("{} has ended", describe(peer)));
      }
      const std::uint64_t beats = slot.beats.load(std::memory_order_relaxed);
      const std::chrono::microseconds silent =
          beats == of.beats ? of.silent.load() + ran : std::chrono::microseconds(0);
      of.silent = silent;
      of.beats = beats;
      if (silent < most_silent_) continue;
      give_up({peer});
      return end(fmt::format("{} has not run for {} ms", describe(peer),
                             std::chrono::duration_cast<std::chrono::milliseconds>(silent).count()));
    }
    return {};
  }

  Links regroup(bool everyone, std::chrono::milliseconds deadline) override {
    return links_of(memory_, everyone, deadline, most_silent_ * 4 / 3);
  }

  /// Links of a new generation. Waits for its members for `wait`.
  static Links links_of(const std::shared_ptr<GroupMemory>& memory, bool everyone, std::chrono::milliseconds wait,
                        std::chrono::milliseconds deadline) {
    const GroupMemory::Generation begun = memory->assemble(everyone, wait);
    Links links;
    for (const std::int32_t own : memory->own())
      links.push_back(std::make_unique<SharedMemoryLink>(memory, begun, own, deadline));
    return links;
  }

 private:
  std::int32_t place(std::int32_t peer) const { return generation_.places[static_cast<std::size_t>(peer)]; }
  /// The contiguous part of the ring from `position` on, but at most a quarter of the ring, so that both sides work at
  /// once.
  template <class Bytes>
  static Bytes part(Bytes bytes, std::uint64_t position, std::uint64_t count) {
    const std::uint64_t at = position % bytes.size();
    return bytes.subspan(at, std::min({count, bytes.size() - at, std::max<std::uint64_t>(bytes.size() / 4, 4096)}));
  }
  void expect_sane(std::uint64_t bytes, std::uint64_t capacity, std::int32_t peer) const {
    if (bytes > capacity)
      fail(ErrorCode::invalid_data, "rank {} says that {} bytes are in a ring of {}", peer, bytes, capacity);
  }

  std::shared_ptr<GroupMemory> memory_;
  GroupMemory::Generation generation_;
  std::int32_t own_;  ///< its place
  std::int32_t rank_;
  std::chrono::milliseconds most_silent_;
  std::vector<Peer> peers_;
  Clock::time_point looked_;
};

/// Only between processes: ranks of one process have faster transports.
class SharedMemory final : public Transport {
 public:
  TransportKind kind() const noexcept override { return TransportKind::shared_memory; }
  std::string reject(StreamView /*from*/, StreamView /*to*/) const override {
    return "needs ranks that are processes: RankGroup::join";
  }
  double probe(StreamView /*from*/, StreamView /*to*/) const override { return 0; }
  bool between_processes() const noexcept override { return true; }
};

}  // namespace

Links links_by_shared_memory(const std::string& name, const std::vector<std::int32_t>& ranks, std::int32_t size,
                             std::chrono::milliseconds deadline) {
  return SharedMemoryLink::links_of(std::make_shared<GroupMemory>(name, ranks, size), true, deadline, deadline);
}

std::unique_ptr<const Transport> make_shared_memory() { return std::make_unique<SharedMemory>(); }

}  // namespace moecl
