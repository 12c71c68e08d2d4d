#pragma once
#include <moecl/agreed.hpp>
#include <moecl/buffer.hpp>
#include <moecl/peer_memory.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/transport_kind.hpp>
#include <moecl/workspace.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// Options of a group of ranks.
struct GroupOptions {
  /// How long a rank waits for its peers in any call.
  std::chrono::milliseconds deadline{30000};
  /// Transport of every pair of ranks; `staged` is possible for any two ranks of a process. Unset: chosen for each
  /// pair. Two ranks of one process take shared_context if they have one device and one context and a probe finds the
  /// data right. Otherwise they take peer_window if it passes the probe, otherwise the fastest transport in the probe.
  /// Ranks of different processes take shared memory on one node, otherwise MPI.
  std::optional<TransportKind> transport;
  /// Memory for peer_window. Unset: what the drivers offer.
  std::shared_ptr<PeerMemory> peer_memory = nullptr;
};

class Communicator;
class StepPool;

/// Ranks that exchange buffers. Each rank has one stream. Ranks are threads of this process, whose streams may belong
/// to different contexts and platforms, or processes, each of which may have several ranks.
///
/// The first failure of any rank ends the group: an exception, a peer that misses the deadline, arguments that
/// disagree, or a process that dies or stops running. Every call of every rank then fails with that first cause, and
/// nothing waits any longer. A new group can be made of the same streams; processes call `shrink`. Commands that are
/// already enqueued go on, and may lack data that did not arrive. Results are complete if `failure` is empty once the
/// stream has finished.
class RankGroup {
 public:
  /// A group of threads. Probes transports. Lifetime: the streams outlive the group.
  /// Errors: invalid_argument  no stream, or a transport that a pair cannot have; device_error
  explicit RankGroup(std::vector<StreamView> streams, const GroupOptions& options = {});
  /// Joins the group called `name`, whose ranks are processes of this user on this node. Something else has started
  /// them. Rows travel by shared memory. Waits for all ranks, checks that their version and options agree, and probes
  /// each pair. Stops the host.
  /// @param name    valid as a file name, the same for all ranks: "MASTER_ADDR:MASTER_PORT", for example
  /// @param stream  of this rank. Lifetime: as the constructor's
  /// Errors: invalid_argument   ranks differ in version, size or options, or another process already has this rank;
  ///         deadline_exceeded  not all ranks came, for example because some are on another node, which needs MPI;
  ///         io_error, out_of_memory  no shared memory
  static RankGroup join(const std::string& name, std::int32_t rank, std::int32_t size, StreamView stream,
                        const GroupOptions& options = {});
  /// A rank that joins, and its stream.
  struct Joining {
    std::int32_t rank;
    StreamView stream;  ///< Lifetime: as the constructor's
  };
  /// The same for a process with several ranks, each a thread. They exchange with each other as the constructor's ranks
  /// do, and by shared memory with ranks of other processes. One call joins all of them, and they are lost together.
  /// Errors: as `join` of one; invalid_argument  no rank, or one twice
  static RankGroup join(const std::string& name, std::vector<Joining> ranks, std::int32_t size,
                        const GroupOptions& options = {});
  /// Removes the name of a group. Ranks that have joined go on; no other rank can join. Also frees the memory of a
  /// group whose processes were killed. That memory otherwise stays until the name is joined again.
  static void remove(const std::string& name) noexcept;
  /// The group of the processes of an MPI communicator, one rank each, in MPI's rank order. Collective: all processes
  /// call it. Uses the MPI of the process, otherwise that of the launcher: Open MPI or MPICH. A plugin beside this
  /// library is loaded for it. MPI must have been initialised with at least MPI_THREAD_SERIALIZED. Ranks of a node
  /// exchange by shared memory, unless options.transport is mpi. The loss of a rank ends the job.
  /// @param mpi_comm  an MPI_Comm, which is duplicated. Null: MPI_COMM_WORLD. If MPI is not initialised, this call then
  ///                  initialises it, and MPI is finalized when the process ends
  /// Errors: unsupported  no MPI, or no plugin for it; another thread level, MPI_THREAD_FUNNELED too; as `join`
  static RankGroup from_mpi(const void* mpi_comm, StreamView stream, const GroupOptions& options = {});
  /// The same for processes with several ranks, each a thread. Ranks of a process exchange as the constructor's do.
  /// Ranks are numbered process by process. Processes may have different numbers of ranks.
  /// @param streams  of the ranks of this process, in order. Lifetime: as the constructor's
  /// Errors: as `from_mpi` of one; invalid_argument  a process has fewer than 1 or more than 64 ranks: on all of them
  static RankGroup from_mpi(const void* mpi_comm, const std::vector<StreamView>& streams,
                            const GroupOptions& options = {});
  RankGroup(RankGroup&&) noexcept;
  RankGroup& operator=(RankGroup&&) noexcept;
  ~RankGroup();

  std::int32_t size() const noexcept;
  /// The ranks of this process, in order.
  std::vector<std::int32_t> local_ranks() const;
  /// The rank that each rank had in the group that was joined. It differs from the present one after `shrink`.
  std::vector<std::int32_t> joined_ranks() const;
  /// Makes a new group of the surviving processes, over the same streams, after this group has ended. All survivors
  /// call it, and use only the new group from then on. Ranks are renumbered in the old order. Nothing is compiled or
  /// probed again. Communicators, windows, strategies and layers of this group stay ended; those of the new group may
  /// take the same memory and weights. Stops the host.
  /// Errors: unsupported  ranks are threads, or MPI's; deadline_exceeded  the others have given up this rank
  RankGroup shrink();
  /// The same with every rank that was joined: lost ranks have been started again and call `join` meanwhile.
  /// Errors: deadline_exceeded  not all came in time; it may be called again
  RankGroup rejoin();
  /// Replaces the streams of this process' ranks, for example by streams that record. No rank may be in a call, and the
  /// old streams must be idle. Lifetime: as the constructor's.
  /// @param streams  one for each of local_ranks
  /// Errors: invalid_argument  a wrong number of streams, or one of another context or device than the rank's old
  /// stream
  void set_streams(const std::vector<StreamView>& streams);
  /// The communicator of all ranks for `rank`, which must be of this process. Used by the host thread of that rank.
  Communicator communicator(std::int32_t rank);
  /// The transport by which `to` receives from `from`.
  const TransportChoice& transport(std::int32_t from, std::int32_t to) const;
  /// Ends the group on all ranks. A group that has ended keeps its first cause.
  void abort(std::string_view cause) noexcept;
  /// Why the group ended; empty while it is intact.
  std::string failure() const;
  /// Runs `body` for every rank of this process, each in a host thread of its own, and joins the threads.
  /// Errors: the first that a rank threw, with the rank's number in front; deadline_exceeded  no rank threw, but the
  ///         group ended, so that enqueued commands may lack its data; with the cause
  void run(const std::function<void(Communicator&)>& body);

 private:
  friend class Communicator;
  struct State;
  enum class Made : std::uint8_t { processes };
  RankGroup(Made, std::shared_ptr<State> state);
  static RankGroup begun(std::shared_ptr<State> state);
  RankGroup regrouped(bool everyone);
  /// As `run`, but a single local rank runs in this thread.
  void run_local(const std::function<void(Communicator&)>& body);
  std::shared_ptr<State> state_;
};

/// One rank's end of the exchanges within a group or a part of it. All members call the same functions in the same
/// order with arguments that agree, as with NCCL or MPI.
///
/// Async: enqueued on the rank's stream; the host thread waits for its peers' host threads, never for a device.
/// Errors: invalid_argument   arguments disagree between ranks: on every rank, naming the first that differs
///         deadline_exceeded  a peer missed the deadline, or the group has ended: then with its first cause
/// Threads: one host thread a rank.
/// Lifetime: later commands of the rank's stream may overwrite the sent memory and read the received memory, since they
/// run after the peers' copies. Another queue, or the host, must wait for the stream first. Memory may be released once
/// the call has returned or thrown, since peers hold references to what they still read. A Strategy needs its tensors
/// for longer.
class Communicator {
 public:
  std::int32_t rank() const noexcept { return rank_; }
  std::int32_t size() const noexcept { return static_cast<std::int32_t>(members_.size()); }
  /// The queue of the exchanges: the rank's stream, or the queue of `beside`.
  StreamView stream() const;
  /// The rank's stream itself.
  StreamView rank_stream() const;
  /// The number of members on each node, where members of a node are consecutive and nodes have equally many. Threads,
  /// and processes that share memory, are all on one node; MPI says which node each of its processes is on.
  /// Errors: unsupported  nodes have different numbers of members
  std::int32_t ranks_per_node() const;
  /// The transport by which this rank receives from a member.
  const TransportChoice& transport(std::int32_t peer) const;
  /// Bytes that this rank has received from others so far, over all its communicators.
  std::uint64_t bytes_received() const;
  /// The part of these bytes that came from one member.
  std::uint64_t bytes_received(std::int32_t peer) const;
  /// How often this rank's host thread has waited for its peers' host threads so far, over all its communicators.
  std::uint64_t meetings() const;

  /// A communicator of some members, given by their ranks here. This rank must be among them. All of them call it with
  /// the same list. The list's order is the order of ranks in the new communicator.
  Communicator part(const std::vector<std::int32_t>& members) const;
  /// Ends the group on all ranks, as RankGroup::abort, with this rank in front of the cause.
  void abort(std::string_view cause) const noexcept;
  /// Runs `body` and returns its result. Any exception, bad_alloc too, ends the group, so that no peer waits until the
  /// deadline. Every exchange does so: if this rank alone refuses an argument, the others get that as the cause.
  template <class Body>
  decltype(auto) together(const Body& body) const {
    try {
      return body();
    } catch (...) {
      abort_for_exception();
      throw;
    }
  }

  /// The same ranks, with exchanges on a queue of their own, so that the rank's stream goes on while bytes travel.
  /// Parts of the new communicator share that queue. The exchange owns its memory from `fork` to `join`. Members must
  /// make their exchanges in the same order over all queues. One rank may have such a queue without the others.
  /// Lifetime: commands of the queue complete before the last copy of the communicator is destroyed
  Communicator beside() const;
  /// Later exchanges wait for everything that the rank's stream was given so far. No effect without a queue of
  /// `beside`.
  void fork() const;
  /// Later commands of the rank's stream wait for all exchanges so far. No effect without a queue of `beside`.
  void join() const;

  /// Stops the host until the event completes, but at most for the group's deadline, whatever happens to its command.
  /// Errors: device_error  a command failed; deadline_exceeded  it did not complete in time, or the group ended. Bytes
  /// that a host thread was to bring may then be missing, and no event tells
  void wait(const Event& event) const;
  /// Exchanges numbers between host threads and returns those of every rank. `agreed` must be equal on all ranks. No
  /// device work.
  std::vector<std::vector<std::int64_t>> share(const char* what, const std::vector<std::int64_t>& mine,
                                               std::vector<Agreed> agreed = {}) const;
  /// No rank's stream goes on before every rank has called this.
  void barrier() const;
  /// recv = sends of rank 0, 1, ... one after the other; every send has the same size.
  void all_gather(BufferView send, BufferView recv) const;
  /// The same for sends of different sizes. `bytes[r]` is the size of rank r's send; all ranks pass the same sizes.
  void all_gather_v(BufferView send, BufferView recv, const std::vector<std::uint64_t>& bytes) const;
  /// Copies `data` of `root` to `data` of every other rank.
  void broadcast(BufferView data, std::int32_t root) const;
  /// Offset and size of each rank's bytes in a buffer.
  struct Blocks {
    std::vector<std::uint64_t> offsets, bytes;  ///< one for each rank
  };
  /// Block r of `send` goes to rank r. Block r of `recv` gets what rank r sends to this rank.
  void all_to_all_v(BufferView send, const Blocks& sends, BufferView recv, const Blocks& receives) const;
  /// out = this rank's rows of the sum over ranks of `data`. Rank r gets rows[r] rows, in rank order. Sums are f32, in
  /// rank order, so every run gives the same bits.
  /// @param data  Shape: [sum of rows, H] f32, f16 or bf16. @param out  Shape: [rows[rank], H] f32, f16 or bf16
  void reduce_scatter(TensorView data, TensorView out, const std::vector<std::int64_t>& rows) const;
  /// data = sum over ranks of data, the same bits everywhere: reduce_scatter, then all_gather_v.
  void all_reduce(TensorView data) const;

  /// The machinery of the collectives; private to this library.
  struct Exchange;

 private:
  friend class RankGroup;
  friend class PutWindow;
  friend class StepPool;
  friend class Window;
  struct Lane;
  Lane& lane() const;
  std::shared_ptr<StepPool> pool() const;
  /// Ends the group; the exception being caught is the cause.
  void abort_for_exception() const noexcept;

  Communicator(std::shared_ptr<RankGroup::State> group, std::vector<std::int32_t> members, std::int32_t rank);

  std::shared_ptr<RankGroup::State> group_;
  std::vector<std::int32_t> members_;  ///< ranks of the group
  std::int32_t rank_ = 0;              ///< among the members
  std::shared_ptr<Lane> lane_;         ///< null: the rank's stream
};

}  // namespace moecl
