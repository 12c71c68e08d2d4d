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

/// What a group of ranks goes by.
struct GroupOptions {
  /// How long a rank waits for its peers in any call.
  std::chrono::milliseconds deadline{30000};
  /// For every pair of ranks; staged is possible everywhere in a process. Unset, for each pair of ranks of one process:
  /// on one device in one context shared_context, once a probe has found the data right; else peer_window wherever it
  /// passes the probe; else the faster one in the probe. Ranks of other processes: by shared memory on a node, else
  /// MPI.
  std::optional<TransportKind> transport;
  /// Of peer_window. Unset: what the drivers offer.
  std::shared_ptr<PeerMemory> peer_memory = nullptr;
};

class Communicator;
class StepPool;

/// Ranks that exchange buffers, one stream each: threads of this process, whose streams may be of different contexts
/// and platforms, or processes, each of which may have several.
///
/// The first failure of any rank (an exception, a peer that does not come within the deadline, arguments that disagree)
/// ends the group: every call of every rank then fails with that cause, and nothing waits any longer. A new group can
/// be made of the same streams; processes `shrink`. A process that dies or does not run any more is such a failure.
/// What was enqueued before goes on, and may lack data that did not come: results are whole where the stream has
/// finished and `failure` is empty then.
class RankGroup {
 public:
  /// Probes transports. Lifetime: the streams outlive the group.
  /// Errors: invalid_argument  no stream, or a transport that a pair cannot have; device_error
  explicit RankGroup(std::vector<StreamView> streams, const GroupOptions& options = {});
  /// The group of that name, of processes of this user on this node that something else has started. Rows go by shared
  /// memory. Waits for all ranks, checks that they agree about version and options, and probes each pair. Stops the
  /// host.
  /// @param name    as a file's, the same for all ranks: "MASTER_ADDR:MASTER_PORT", say
  /// @param stream  of this rank. Lifetime: as the constructor's
  /// Errors: invalid_argument   ranks differ in version, size or options, or a process is that rank already;
  ///         deadline_exceeded  not all ranks came: also where some are on another node, which needs MPI;
  ///         io_error, out_of_memory  no shared memory
  static RankGroup join(const std::string& name, std::int32_t rank, std::int32_t size, StreamView stream,
                        const GroupOptions& options = {});
  /// A rank that joins, and its stream.
  struct Joining {
    std::int32_t rank;
    StreamView stream;  ///< Lifetime: as the constructor's
  };
  /// The same for a process with several ranks, which are threads of it: these exchange as the constructor's do, and by
  /// shared memory with those of other processes. They join and are lost together. One call joins all of them.
  /// Errors: as `join` of one; invalid_argument  no rank, or one twice
  static RankGroup join(const std::string& name, std::vector<Joining> ranks, std::int32_t size,
                        const GroupOptions& options = {});
  /// Takes the name from a group: who has joined goes on, nobody joins any more. Also of a group whose processes were
  /// killed, whose memory stays otherwise until that name is joined again.
  static void remove(const std::string& name) noexcept;
  /// The group of the processes of an MPI communicator, in its order of ranks: one rank each. All of them call it. MPI
  /// is that of the process, else that of the launcher, Open MPI or MPICH: a plugin beside this library is loaded for
  /// it. MPI's threads: it has been initialised with MPI_THREAD_SERIALIZED at least. Ranks of a node exchange by shared
  /// memory, unless options.transport is mpi. A rank that is lost ends the job.
  /// @param mpi_comm  an MPI_Comm, which is duplicated; null: MPI_COMM_WORLD, which this call initialises where nobody
  ///                  has, and which is finalized with the last group then
  /// Errors: unsupported  no MPI, or no plugin for it; another thread level, MPI_THREAD_FUNNELED too; as `join`
  static RankGroup from_mpi(const void* mpi_comm, StreamView stream, const GroupOptions& options = {});
  /// The same for processes with several ranks, which are threads of it: these exchange as the constructor's do. Ranks
  /// count through the processes, which may have different numbers of them.
  /// @param streams  of the ranks of this process, in order. Lifetime: as the constructor's
  /// Errors: as `from_mpi` of one; invalid_argument  a process has other than 1 to 64 ranks: on all of them
  static RankGroup from_mpi(const void* mpi_comm, const std::vector<StreamView>& streams,
                            const GroupOptions& options = {});
  RankGroup(RankGroup&&) noexcept;
  RankGroup& operator=(RankGroup&&) noexcept;
  ~RankGroup();

  std::int32_t size() const noexcept;
  /// Those of this process, in order.
  std::vector<std::int32_t> local_ranks() const;
  /// The rank that each had in the group that was joined: other ones once it has shrunk.
  std::vector<std::int32_t> joined_ranks() const;
  /// A group of the processes that are left of this one, which has ended, over the same streams; all of them call it,
  /// and use the new one alone. Ranks count anew, in the old order. Nothing is compiled or probed again. Communicators,
  /// windows, strategies and layers of this group stay ended: those of the new one take the same memory and weights.
  /// Stops the host. Errors: unsupported  ranks are threads, or MPI's;
  ///         deadline_exceeded  the others have given up this rank
  RankGroup shrink();
  /// The same with every rank that was joined: those that were lost have been started again and `join` meanwhile.
  /// Errors: deadline_exceeded  not all came in time; then it may be called again
  RankGroup rejoin();
  /// Lets the ranks go on with other streams, such as ones that record. No rank may be in a call, and the old streams
  /// must be idle. Lifetime: as the constructor's.
  /// @param streams  one for each of local_ranks
  /// Errors: invalid_argument  another number of them, or a rank's would change its context or device
  void set_streams(const std::vector<StreamView>& streams);
  /// The face of all ranks that this rank, of this process, uses in its own host thread.
  Communicator communicator(std::int32_t rank);
  /// How `to` receives from `from`.
  const TransportChoice& transport(std::int32_t from, std::int32_t to) const;
  /// Ends the group for everyone. A group that ended keeps its first cause.
  void abort(std::string_view cause) noexcept;
  /// Empty while the group is whole.
  std::string failure() const;
  /// Runs `body` for every rank of this process in a host thread of its own and joins them.
  /// Errors: the first that a rank threw, with the rank's number in front; deadline_exceeded  none did, but the group
  ///         ended, so that what they enqueued may lack its data; with the cause
  void run(const std::function<void(Communicator&)>& body);

 private:
  friend class Communicator;
  struct State;
  enum class Made : std::uint8_t { processes };
  RankGroup(Made, std::shared_ptr<State> state);
  static RankGroup begun(std::shared_ptr<State> state);
  RankGroup regrouped(bool everyone);
  /// As `run`; where one rank is here, in this thread.
  void run_local(const std::function<void(Communicator&)>& body);
  std::shared_ptr<State> state_;
};

/// One rank's end of the exchanges within a group or a part of it. Every member calls the same functions in the same
/// order with arguments that agree, as with NCCL or MPI.
///
/// Async: enqueued on the rank's stream; the host thread waits for its peers' host threads, never for a device.
/// Errors: invalid_argument   arguments disagree between ranks: on every rank, naming the first that differs
///         deadline_exceeded  a peer did not come in time, or the first cause of a group that ended
/// Threads: one host thread a rank.
/// Lifetime: commands given to the rank's stream after the call may overwrite what was sent and read what came: they
/// run after the peers' copies. Another queue, or the host, waits for the stream first. Memory may be released once the
/// call has returned or thrown: peers have references to what they still read. Strategy keeps its tensors longer.
class Communicator {
 public:
  std::int32_t rank() const noexcept { return rank_; }
  std::int32_t size() const noexcept { return static_cast<std::int32_t>(members_.size()); }
  /// Where exchanges are enqueued: the rank's stream, or the queue of `beside`.
  StreamView stream() const;
  /// The rank's stream itself.
  StreamView rank_stream() const;
  /// Of members that stand on nodes in runs of one size, that size: threads and processes of shared memory are all on
  /// one, of MPI's it says which. Errors: unsupported  they do not
  std::int32_t ranks_per_node() const;
  /// How this rank receives from a member.
  const TransportChoice& transport(std::int32_t peer) const;
  /// Bytes that this rank has received from others so far, over all its communicators.
  std::uint64_t bytes_received() const;
  /// Of those, what came from one member.
  std::uint64_t bytes_received(std::int32_t peer) const;
  /// How often this rank's host thread has waited for its peers' so far, over all its communicators.
  std::uint64_t meetings() const;

  /// The communicator of those members (by their rank here), of which this rank is one; they all call it with the same
  /// list. Ranks count in the order of the list.
  Communicator part(const std::vector<std::int32_t>& members) const;
  /// Ends the group for everyone, as RankGroup::abort, with this rank in front of the cause.
  void abort(std::string_view cause) const noexcept;
  /// What `body` returns; what it throws, bad_alloc too, ends the group, so that no peer waits for this rank until the
  /// deadline. Every exchange does so: an argument that this rank alone refuses reaches the others as the cause.
  template <class Body>
  decltype(auto) together(const Body& body) const {
    try {
      return body();
    } catch (...) {
      abort_for_exception();
      throw;
    }
  }

  /// The same ranks on a queue of their own, so that the rank's stream goes on while bytes travel. Parts of it share
  /// the queue; memory belongs to the exchange from `fork` to `join`. Members agree about the order of their exchanges
  /// over all queues. A rank alone may have one. Lifetime: its commands are done before the last copy of it goes
  Communicator beside() const;
  /// Exchanges from here on wait for what the rank's stream was given so far. Nothing to do without a queue of its own.
  void fork() const;
  /// The rank's stream waits for the exchanges so far.
  void join() const;

  /// Stops the host until the event completes, but no longer than the group's deadline, whatever becomes of its
  /// command. Errors: device_error  a command failed; deadline_exceeded  it did not complete, or the group ended: then
  /// bytes that
  ///         a thread was to bring may be missing, which no event tells
  void wait(const Event& event) const;
  /// Numbers of every rank, on the host, where all bring the same things to agree about. No device work.
  std::vector<std::vector<std::int64_t>> share(const char* what, const std::vector<std::int64_t>& mine,
                                               std::vector<Agreed> agreed = {}) const;
  /// No rank's stream goes on before every rank has come.
  void barrier() const;
  /// recv = sends of rank 0, 1, ... one after the other; every send has the same size.
  void all_gather(BufferView send, BufferView recv) const;
  /// The same for sends of different sizes; `bytes[r]` is rank r's, the same on every rank.
  void all_gather_v(BufferView send, BufferView recv, const std::vector<std::uint64_t>& bytes) const;
  /// `data` of `root` to everyone.
  void broadcast(BufferView data, std::int32_t root) const;
  /// Where the bytes of each rank stand in a buffer.
  struct Blocks {
    std::vector<std::uint64_t> offsets, bytes;  ///< one each a rank
  };
  /// Block r of `send` goes to rank r; what rank r sends here goes to block r of `recv`.
  void all_to_all_v(BufferView send, const Blocks& sends, BufferView recv, const Blocks& receives) const;
  /// out = this rank's rows of the sum over ranks of `data`; rank r owns rows[r] rows, in order of rank. f32 sums in
  /// order of rank, so every run gives the same bits.
  /// @param data  Shape: [sum of rows, H] f32, f16 or bf16. @param out  Shape: [rows[rank], H] f32, f16 or bf16
  void reduce_scatter(TensorView data, TensorView out, const std::vector<std::int64_t>& rows) const;
  /// data = sum over ranks of data, the same bits everywhere: reduce_scatter, then all_gather_v.
  void all_reduce(TensorView data) const;

  /// What those are made of; private to this library.
  struct Exchange;

 private:
  friend class RankGroup;
  friend class PutWindow;
  friend class StepPool;
  friend class Window;
  struct Lane;
  Lane& lane() const;
  std::shared_ptr<StepPool> pool() const;
  /// With what is being caught as the cause.
  void abort_for_exception() const noexcept;

  Communicator(std::shared_ptr<RankGroup::State> group, std::vector<std::int32_t> members, std::int32_t rank);

  std::shared_ptr<RankGroup::State> group_;
  std::vector<std::int32_t> members_;  ///< ranks of the group
  std::int32_t rank_ = 0;              ///< among the members
  std::shared_ptr<Lane> lane_;         ///< null: the rank's own
};

}  // namespace moecl
