#pragma once
// What ties a rank to those of other processes: bytes in order between each pair, and who is still there.
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

/// For each pair and direction two streams of bytes, each in order. Ranks are those of the group.
///
/// Whoever moves bytes looks at all peers and rests when nothing could be done:
///
///     heard = bell(c);  for each peer: fill room and `send`, read what `arrived` and `take`;  none: rest(c, heard)
///
/// Threads: one thread a channel at a time, and one that looks.
class Link {
 public:
  enum Channel : std::uint8_t { notes, rows };
  static constexpr int channels = 2;

  virtual ~Link() = default;
  /// How bytes of the one get to the other.
  virtual TransportKind kind(std::int32_t from, std::int32_t to) const noexcept = 0;
  virtual std::int32_t rank() const noexcept = 0;
  virtual std::int32_t size() const noexcept = 0;
  /// The rank that each had when it joined: others where the group has shrunk.
  virtual const std::vector<std::int32_t>& places() const noexcept = 0;

  /// The first rank on the node of each rank.
  virtual std::vector<std::int32_t> nodes() const { return std::vector<std::int32_t>(places().size(), 0); }

  /// Room for what goes to the peer next; empty: none now. Lifetime: until `send`
  virtual std::span<std::byte> room(Channel channel, std::int32_t peer) = 0;
  /// So many bytes from the beginning of the room go.
  virtual void send(Channel channel, std::int32_t peer, std::size_t bytes) = 0;
  /// What has come from the peer and was not taken; empty: nothing. Lifetime: until `take`
  /// Errors: invalid_data  the peer says what cannot be
  virtual std::span<const std::byte> arrived(Channel channel, std::int32_t peer) = 0;
  virtual void take(Channel channel, std::int32_t peer, std::size_t bytes) = 0;
  /// Whether memory of the peer's process may be read, as far as it is known; and reads so many bytes of it.
  /// @return  Whether they are there. Threads: the one of `rows`
  virtual bool may_read(std::int32_t /*peer*/) const noexcept { return false; }
  virtual bool read(std::int32_t /*peer*/, std::uint64_t /*address*/, std::span<std::byte> /*to*/) { return false; }
  /// Whether all that was sent has left this rank, or goes without it.
  virtual bool settled(Channel /*channel*/) { return true; }
  /// Another number whenever a peer has sent or taken something since.
  virtual std::uint32_t bell(Channel channel) noexcept = 0;
  /// Stops this thread until the bell rings, but some milliseconds at most.
  virtual void rest(Channel channel, std::uint32_t heard) noexcept = 0;

  /// What this rank is in, for those who miss it. Threads: any
  virtual void in_phase(std::string_view what) noexcept = 0;
  /// The peer in words: "rank 2 (process 4711) in dispatch"
  virtual std::string describe(std::int32_t peer) const = 0;
  /// Whether the peer has left on purpose, so that nothing will come from it.
  virtual bool has_left(std::int32_t peer) const noexcept = 0;
  /// Those that have not run for a while, and for far longer than others: whoever else did not come may wait for them.
  /// Threads: any
  virtual std::vector<std::int32_t> silent() const = 0;
  /// Those are to blame for the end, and no part of the group when it shrinks.
  virtual void give_up(const std::vector<std::int32_t>& peers) noexcept = 0;
  /// Ends the group on all ranks. @return  The cause that stands, the first. Threads: any
  virtual std::string end(std::string_view cause) = 0;
  /// Why the group has ended, as far as it is known here; empty: it has not. Threads: any
  virtual std::string ended() const = 0;
  /// Tells the peers that this process lives, and looks whether they do. @return  Why the group has ended; empty: it
  /// has not. Calls come some milliseconds apart
  virtual std::string look() = 0;

  /// Links of those that are left, or of all again: one for each rank of this process. All processes call it, of one
  /// of their links; nobody uses them any more.
  /// Errors: deadline_exceeded  not all came in time; unsupported  the launcher ends all ranks together
  virtual std::vector<std::unique_ptr<Link>> regroup(bool everyone, std::chrono::milliseconds deadline) = 0;
};

/// Gives those up, for whom somebody has waited too long; in words.
std::string accused(Link& link, const std::vector<std::int32_t>& peers);
/// Those that Link::silent tells, by how long each has not run; who may not for `longest` has to have for a third of
/// it.
std::vector<std::int32_t> far_more_silent(const std::vector<std::chrono::microseconds>& times,
                                          std::chrono::milliseconds longest);

/// Of the ranks of this process, in order.
using Links = std::vector<std::unique_ptr<Link>>;

}  // namespace moecl
