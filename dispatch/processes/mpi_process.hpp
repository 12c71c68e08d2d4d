#pragma once
// What the ranks of a process of MPI share: the communicator, which rank is where, and which processes are alive. MPI
// itself is called in a plugin.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// A buffer for one message: in transit, free, or received and being read.
struct MpiSlot {
  std::vector<std::byte> bytes;
  void* request = nullptr;
  std::size_t count = 0, taken = 0;
};

/// Owner of a duplicated communicator. Frees it even if code that is built on it throws.
struct MpiComm {
  void* handle = nullptr;
  int process = 0, processes = 0;
  bool whole = false;  ///< no process was lost
  std::chrono::milliseconds deadline;

  /// Collective: all processes call it. Errors: unsupported  no MPI, no plugin, or its thread level is too low;
  /// device_error
  MpiComm(const void* of, std::chrono::milliseconds deadline);
  ~MpiComm();
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;
};

/// The process of this communicator, with its ranks. Ranks are numbered process by process. Threads: any; MPI is called
/// by one at a time.
class MpiProcess {
 public:
  static constexpr std::int32_t most_ranks = 64;  ///< of one process

  /// Collective: all processes call it. @param ranks  of this process. @param deadline  a peer may be silent for less
  /// Errors: as MpiComm; deadline_exceeded  not all called it, as far as MPI knows; invalid_argument  a process has a
  /// number of ranks outside [1, most_ranks]: on all processes
  MpiProcess(const void* mpi_comm, std::int32_t ranks, std::chrono::milliseconds deadline);
  /// Waits until all sent messages have left.
  ~MpiProcess();
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  /// The number of all ranks.
  std::int32_t size() const noexcept { return static_cast<std::int32_t>(places_.size()); }
  /// The first rank of this process, and how many it has.
  std::int32_t first() const noexcept { return ranks_[mine()].first; }
  std::int32_t count() const noexcept { return ranks_[mine()].count; }
  const std::vector<std::int32_t>& places() const noexcept { return places_; }
  const std::vector<std::int32_t>& nodes() const noexcept { return nodes_; }
  /// Equal on the processes of a node, and different from any other group's name.
  const std::string& name_of_node() const noexcept { return name_of_node_; }

  /// Begin to send the first `bytes` bytes of a slot, or to receive up to `bytes` bytes into it. Messages of a pair and
  /// channel arrive in order.
  void send(MpiSlot& slot, std::size_t bytes, Link::Channel channel, std::int32_t from, std::int32_t to);
  void receive(MpiSlot& slot, std::size_t bytes, Link::Channel channel, std::int32_t from, std::int32_t to);
  /// Whether the slot's transfer has completed, or none was begun.
  bool is_free(MpiSlot& slot);
  /// Takes over the transfers that a leaving rank has begun. They end with this object.
  void keep(std::vector<MpiSlot> sent, std::vector<MpiSlot> received);

  // As Link has them.
  void in_phase(std::int32_t rank, std::string_view what) noexcept;
  std::string describe(std::int32_t rank) const;
  bool has_left(std::int32_t rank) const noexcept;
  std::vector<std::int32_t> silent() const;
  std::string end(std::string_view cause);
  std::string ended() const;
  std::string look();
  /// "Open MPI"
  static const char* library();

 private:
  using Clock = std::chrono::steady_clock;
  /// The ranks of a process.
  struct Ranks {
    std::int32_t first, count;
  };
  /// Another process.
  struct Peer {
    MpiSlot ending, goodbye, beat_out, beat_in;
    std::vector<std::byte> heard;  ///< the phases of its ranks; empty: none received
    std::uint64_t beats_sent = 0, beats_heard = 0;
    std::optional<std::uint64_t> last_beat;  ///< set once it has left: how many it had sent
    std::chrono::microseconds silent{};
  };

  std::size_t mine() const noexcept { return static_cast<std::size_t>(comm_->process); }
  std::size_t process_of(std::int32_t rank) const noexcept { return process_of_[static_cast<std::size_t>(rank)]; }
  int tag(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept;
  /// Calls `act` with each other process and its number.
  template <class Act>
  void for_peers(Act act);
  void begin_send(MpiSlot& slot, std::size_t bytes, std::size_t to, int tag);
  void begin_receive(MpiSlot& slot, std::size_t bytes, std::size_t from, int tag);
  bool test(MpiSlot& slot);
  std::string described(std::int32_t rank) const;
  bool hear_ending(std::size_t process);
  bool hear_beat(std::size_t process);
  std::string beat();
  void say_goodbye(Clock::time_point end) noexcept;

  std::unique_ptr<MpiComm> comm_;
  std::vector<Ranks> ranks_;  ///< of each process
  std::vector<std::size_t> process_of_;
  std::vector<std::int32_t> places_, nodes_;
  std::string name_of_node_;
  std::chrono::milliseconds most_silent_;
  mutable std::mutex mutex_;  ///< guards MPI, and the members below
  std::vector<Peer> peers_;   ///< [processes]; the entry of this process is unused
  std::vector<std::byte> phases_;
  std::vector<MpiSlot> sent_, received_;  ///< of ranks that have left
  Clock::time_point beaten_, looked_;
  std::string cause_;
};

}  // namespace moecl
