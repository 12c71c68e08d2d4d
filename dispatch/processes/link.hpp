#pragma once
// A rank's link to ranks of other processes: ordered bytes between each pair, and which processes are alive.
#include <moecl/transport_kind.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// Each pair has in each direction two ordered streams of bytes: channel `notes` and channel `rows`. Ranks are those of
/// the group.
///
/// A thread that moves bytes polls all peers, and rests if nothing could be done:
///
///     heard = bell(c);  for each peer: fill room and `send`, read what `arrived` and `take`;  none: rest(c, heard)
///
/// Threads: one thread for each channel at a time, and one that calls `look`.
class Link {
 public:
  enum Channel : std::uint8_t { notes, rows };
  static constexpr int channels = 2;

  virtual ~Link() = default;
  /// The transport from one rank to another.
  virtual TransportKind kind(std::int32_t from, std::int32_t to) const noexcept = 0;
  virtual std::int32_t rank() const noexcept = 0;
  virtual std::int32_t size() const noexcept = 0;
  /// The rank that each rank had when it joined. It differs from the present one once the group has shrunk.
  virtual const std::vector<std::int32_t>& places() const noexcept = 0;

  /// The first rank on the node of each rank.
  virtual std::vector<std::int32_t> nodes() const { return std::vector<std::int32_t>(places().size(), 0); }

  /// Free space for the next bytes to the peer; empty: none now. Lifetime: until `send`
  virtual std::span<std::byte> room(Channel channel, std::int32_t peer) = 0;
  /// Sends the first `bytes` bytes of the room.
  virtual void send(Channel channel, std::int32_t peer, std::size_t bytes) = 0;
  /// Bytes that have arrived from the peer and were not taken; empty: none. Lifetime: until `take`
  /// Errors: invalid_data  the peer announces impossible sizes
  virtual std::span<const std::byte> arrived(Channel channel, std::int32_t peer) = 0;
  virtual void take(Channel channel, std::int32_t peer, std::size_t bytes) = 0;
  /// `may_read`: whether this process may read memory of the peer's process, as far as is known. `read` reads it.
  /// @return  of `read`: whether all bytes were read. Threads: the one of `rows`
  virtual bool may_read(std::int32_t /*peer*/) const noexcept { return false; }
  virtual bool read(std::int32_t /*peer*/, std::uint64_t /*address*/, std::span<std::byte> /*to*/) { return false; }
  /// Whether all sent bytes have left this rank, or will leave without further calls.
  virtual bool settled(Channel /*channel*/) { return true; }
  /// A number that changes whenever a peer has sent or taken something.
  virtual std::uint32_t bell(Channel channel) noexcept = 0;
  /// Blocks this thread until the bell differs from `heard`, but for at most some milliseconds.
  virtual void rest(Channel channel, std::uint32_t heard) noexcept = 0;

  /// Publishes what this rank is doing, for error messages of peers that miss it. Threads: any
  virtual void in_phase(std::string_view what) noexcept = 0;
  /// The peer in words: "rank 2 (process 4711) in dispatch"
  virtual std::string describe(std::int32_t peer) const = 0;
  /// Whether the peer has left on purpose; nothing more will come from it.
  virtual bool has_left(std::int32_t peer) const noexcept = 0;
  /// Peers that have not run for a while, and for far longer than the others. Other peers that did not come may only be
  /// waiting for these. Threads: any
  virtual std::vector<std::int32_t> silent() const = 0;
  /// Marks peers as the cause of the end. They are not part of the group when it shrinks.
  virtual void give_up(const std::vector<std::int32_t>& peers) noexcept = 0;
  /// Ends the group on all ranks. @return  the first cause, which counts. Threads: any
  virtual std::string end(std::string_view cause) = 0;
  /// Why the group has ended, as far as this process knows; empty: it has not. Threads: any
  virtual std::string ended() const = 0;
  /// Sends a heartbeat to the peers and checks theirs. @return  Why the group has ended; empty: it has not. Called
  /// every few milliseconds
  virtual std::string look() = 0;

  /// Links of a new group: of the surviving ranks, or of all ranks again. Returns one for each rank of this process.
  /// All processes call it, each on one of its links; the old links are not used any more.
  /// Errors: deadline_exceeded  not all came in time; unsupported  the launcher ends all ranks together
  virtual std::vector<std::unique_ptr<Link>> regroup(bool everyone, std::chrono::milliseconds deadline) = 0;
};

/// Gives up peers that missed the deadline. @return  them in words
std::string accused(Link& link, const std::vector<std::int32_t>& peers);
/// The ranks for Link::silent, from how long each has not run. `longest` is the silence at which a rank counts as lost;
/// a rank must have been silent for at least a third of it.
std::vector<std::int32_t> far_more_silent(const std::vector<std::chrono::microseconds>& times,
                                          std::chrono::milliseconds longest);

/// Links of the ranks of this process, in rank order.
using Links = std::vector<std::unique_ptr<Link>>;

}  // namespace moecl
