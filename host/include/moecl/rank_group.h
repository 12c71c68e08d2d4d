#ifndef MOECL_RANK_GROUP_H
#define MOECL_RANK_GROUP_H
/// @file
/// Groups of ranks that exchange device memory, with their collectives and windows. Ranks are threads of one process,
/// or processes. npu_distribute.h has the operators on ranks, parallel_layer.h a layer.
///
/// A rank is a stream and a host thread of the caller. Every member of a communicator calls the same functions in the
/// same order with arguments that agree, as with NCCL, HCCL or MPI. A call waits for the peers' host threads, never for
/// a device, and is enqueued on the rank's stream. Later commands of that stream may overwrite what was sent and read
/// what came: they run after the peers' copies. Another queue, or the host, must wait for the stream first. Memory may
/// be released once the call has returned, also with an error: peers hold references to what they still read. Token
/// dispatchers need their tensors for longer.
///
/// The first failure of a rank, such as a refused argument, ends its group unless a function says otherwise. Every call
/// of every rank then fails with that cause (deadline_exceeded), and no call waits any longer. A new group can be made
/// of the same streams. Between contexts, bytes travel after a call has returned: the next call reports their failure.
/// Commands already enqueued still run, and may lack data that did not come. Results are complete if the stream has
/// finished and moecl_rank_group_failure then says "".
#include <moecl/moecl.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Ranks that exchange device memory, within one process or across processes.
typedef struct moecl_rank_group moecl_rank_group;
/// One rank's end of the exchanges within a group or a part of it.
typedef struct moecl_communicator moecl_communicator;

/// How bytes move between two ranks.
typedef enum moecl_transport {
  /// chosen for each pair of ranks. Ranks of one process: shared_context on one device in one context, if a probe finds
  /// the data right; else peer_window wherever it passes the probe; else the fastest in the probe. Ranks of different
  /// processes: shared memory on one node, else MPI
  MOECL_TRANSPORT_PROBED = 0,
  MOECL_TRANSPORT_SHARED_CONTEXT = 1,  ///< the receiver copies out of the sender's cl_mem; ranks of one cl_context
  MOECL_TRANSPORT_STAGED = 2,          ///< through pinned host memory, by a thread of the receiver
  MOECL_TRANSPORT_PEER_WINDOW = 3,     ///< into memory of the receiver's device that the sender's kernels can access
  MOECL_TRANSPORT_SHARED_MEMORY = 4,   ///< between processes of one node: through memory that they share
  MOECL_TRANSPORT_MPI = 5              ///< between processes of MPI
} moecl_transport;

/// Options of a group of ranks.
typedef struct moecl_rank_group_options {
  uint64_t size_bytes;
  int64_t deadline_ms;  ///< how long a rank waits for its peers in any call; 0: 30000
  int32_t transport;    ///< moecl_transport, for every pair
} moecl_rank_group_options;

/// How one rank receives from another, and why.
typedef struct moecl_transport_info {
  uint64_t size_bytes;
  int32_t transport;  ///< the chosen moecl_transport
  char reason[256];   ///< "same device, 5.1 GB/s in the probe"
} moecl_transport_info;

/// A group of ranks 0, 1, ..., one for each of the streams, which may be of different contexts and platforms. Stops the
/// host for the probe. The group keeps what it needs of the streams, so they may be destroyed.
/// @param options  NULL for the defaults.
/// Errors: invalid_argument  no stream, or a transport that a pair cannot have; device_error
moecl_status moecl_rank_group_create(moecl_stream* const* streams, int32_t count,
                                     const moecl_rank_group_options* options, moecl_rank_group** out_group);
/// Joins the group of this name. Its ranks are processes of this user on this node, one rank each, started by something
/// else. Rows travel through shared memory. Waits for all ranks, checks that they agree about version and options, and
/// probes each pair.
/// @param name    like a file's, the same for all ranks: for example "MASTER_ADDR:MASTER_PORT"
/// @param stream  of this rank
/// Errors: invalid_argument  ranks differ in version, size or options, or a process is that rank already;
///         deadline_exceeded  not all ranks came, for example because some are on another node, which needs MPI;
///         io_error, out_of_memory
moecl_status moecl_rank_group_join(const char* name, int32_t rank, int32_t size, moecl_stream* stream,
                                   const moecl_rank_group_options* options, moecl_rank_group** out_group);
/// The same for a process with several ranks, which are threads of it. These exchange with each other as those of
/// moecl_rank_group_create do, and with ranks of other processes through shared memory. They join and are lost
/// together.
/// @param ranks  of this process: `count` of the `size`. @param streams  one for each of them
/// Errors: as moecl_rank_group_join; invalid_argument  no rank, or the same rank twice
moecl_status moecl_rank_group_join_ranks(const char* name, const int32_t* ranks, moecl_stream* const* streams,
                                         int32_t count, int32_t size, const moecl_rank_group_options* options,
                                         moecl_rank_group** out_group);
/// The group of the processes of an MPI communicator, one rank each, in its order of ranks. All of them call it. MPI is
/// Open MPI or MPICH: a plugin beside this library is loaded for the one that the process, or its launcher, has. MPI
/// must be initialised with at least MPI_THREAD_SERIALIZED. Ranks of a node exchange through shared memory, unless the
/// options ask for mpi. A lost rank ends the job.
/// @param mpi_comm  an MPI_Comm, which is duplicated; NULL: MPI_COMM_WORLD, and this call initialises MPI if needed
/// Errors: unsupported  no MPI, or no plugin for it, or a lower thread level, such as MPI_THREAD_FUNNELED; as
///         moecl_rank_group_join
moecl_status moecl_rank_group_from_mpi(const void* mpi_comm, moecl_stream* stream,
                                       const moecl_rank_group_options* options, moecl_rank_group** out_group);
/// The same for processes with several ranks, which are threads of it. These exchange with each other as those of
/// moecl_rank_group_create do. Ranks are numbered through the processes, which may have different numbers of ranks.
/// @param streams  of the ranks of this process, in order: `count`
/// Errors: as moecl_rank_group_from_mpi; invalid_argument  on all processes, if one has other than 1 to 64 ranks
moecl_status moecl_rank_group_from_mpi_ranks(const void* mpi_comm, moecl_stream* const* streams, int32_t count,
                                             const moecl_rank_group_options* options, moecl_rank_group** out_group);
/// A group of the remaining processes of this group, which has ended, over the same streams. All of them call it, and
/// then use only the new group. Ranks are renumbered, in the old order. Nothing is compiled or probed again.
/// Errors: unsupported  ranks are threads, or MPI's; deadline_exceeded  the others have given up this rank
moecl_status moecl_rank_group_shrink(moecl_rank_group* group, moecl_rank_group** out_group);
/// The same with every rank that had joined: lost ranks have been started again and join meanwhile.
/// Errors: deadline_exceeded  not all came in time; then it may be called again
moecl_status moecl_rank_group_rejoin(moecl_rank_group* group, moecl_rank_group** out_group);
/// The number of ranks, and the rank that each had in the group that was joined; it differs after a shrink.
/// @param out_ranks  optional: an element for each rank
moecl_status moecl_rank_group_members(const moecl_rank_group* group, int32_t* out_size, int32_t* out_ranks);
/// The ranks of this process, in order. All ranks, if they are threads of one process.
/// @param out_ranks  optional: an element for each of them
moecl_status moecl_rank_group_local(const moecl_rank_group* group, int32_t* out_count, int32_t* out_ranks);
/// NULL is no error. Communicators keep what they need. No rank may be within a call.
moecl_status moecl_rank_group_destroy(moecl_rank_group* group);
/// How rank `to` receives from rank `from`.
moecl_status moecl_rank_group_transport(const moecl_rank_group* group, int32_t from, int32_t to,
                                        moecl_transport_info* out_info);
/// Ends the group for everyone, for example when a rank fails outside of moecl. A group that ended keeps its first
/// cause. Threads: any.
moecl_status moecl_rank_group_abort(moecl_rank_group* group, const char* cause);
/// Why the group ended, cut to fit `text_bytes` with its NUL; "" while it is whole. Threads: any.
moecl_status moecl_rank_group_failure(const moecl_rank_group* group, char* out_text, uint64_t text_bytes);

/// The communicator that rank `rank` uses, in its own host thread.
moecl_status moecl_rank_group_communicator(moecl_rank_group* group, int32_t rank,
                                           moecl_communicator** out_communicator);
/// The communicator of these members (by their rank in `communicator`), of which this rank is one. All of them call it
/// with the same list. Ranks are numbered in the order of the list. A refusal does not end the group.
moecl_status moecl_communicator_part(const moecl_communicator* communicator, const int32_t* members, int32_t count,
                                     moecl_communicator** out_communicator);
/// NULL is no error.
moecl_status moecl_communicator_destroy(moecl_communicator* communicator);

/// The position of a rank, and its counters.
typedef struct moecl_communicator_info {
  uint64_t size_bytes;
  int32_t rank;
  int32_t size;             ///< R
  uint64_t bytes_received;  ///< from other ranks so far, over all communicators of this rank
  uint64_t meetings;        ///< how often this rank's host thread has waited for its peers so far, over all of them
} moecl_communicator_info;
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_communicator_describe(const moecl_communicator* communicator, moecl_communicator_info* out_info);

/// Stops the host until everything enqueued on the rank's stream so far has completed, but no longer than the group's
/// deadline, whatever the driver says; moecl_stream_finish has no deadline.
/// Errors: device_error  a command failed; deadline_exceeded  a command did not complete in time, or the group ended
moecl_status moecl_communicator_wait(const moecl_communicator* communicator);

// Collectives. If nothing moves, a `memory` may be NULL. Arrays have an element for each rank.

/// No rank's stream continues before every rank has called this.
moecl_status moecl_barrier(moecl_communicator* communicator);
/// recv = the `send` of rank 0, 1, ... one after the other. bytes[r] is the size of rank r's; the array is the same on
/// every rank.
moecl_status moecl_all_gather(moecl_communicator* communicator, moecl_device_array send, moecl_device_array recv,
                              const uint64_t* bytes);
/// Copies `data` of `root` to every rank.
moecl_status moecl_broadcast(moecl_communicator* communicator, moecl_device_array data, uint64_t bytes, int32_t root);
/// Sends send_bytes[r] bytes at send_offsets[r] of `send` to rank r, and receives what rank r sends here at
/// recv_offsets[r] of `recv`.
moecl_status moecl_all_to_all_v(moecl_communicator* communicator, moecl_device_array send, const uint64_t* send_offsets,
                                const uint64_t* send_bytes, moecl_device_array recv, const uint64_t* recv_offsets,
                                const uint64_t* recv_bytes);
/// out = this rank's rows of the sum of `data` over the ranks. Rank r owns rows[r] rows, in order of rank. f32 sums are
/// added in order of rank, so every run gives the same bits.
/// @param data   Shape: [sum of rows, width] of dtype. @param out  Shape: [rows[rank], width] of dtype
/// @param dtype  moecl_dtype f32, f16 or bf16
moecl_status moecl_reduce_scatter(moecl_communicator* communicator, moecl_device_array data, moecl_device_array out,
                                  int32_t dtype, int64_t width, const int64_t* rows);
/// data = sum of data over the ranks, with the same bits everywhere.
/// @param data  Shape: [rows, width] of dtype
moecl_status moecl_all_reduce(moecl_communicator* communicator, moecl_device_array data, int32_t dtype, int64_t rows,
                              int64_t width);

/// Memory of every rank that the others may put into. An offset means the same position on all of them.
///
/// moecl_window_fence, which all ranks call, divides time into epochs. In each epoch a rank puts into the memory of
/// others, and uses what came into its own before the last fence, at another place: with two halves that alternate, one
/// fence per step is enough.
typedef struct moecl_window moecl_window;
/// By all ranks, with the same size. The initial contents are undefined.
/// Errors: invalid_argument  the sizes disagree; out_of_memory
moecl_status moecl_window_create(moecl_communicator* communicator, uint64_t bytes, moecl_window** out_window);
/// NULL is no error. Puts that are under way do not need the window.
moecl_status moecl_window_destroy(moecl_window* window);
/// This rank's own memory, for kernels and reads; NULL if it has no bytes. Lifetime: that of the window; retain it to
/// keep it.
moecl_status moecl_window_memory(const moecl_window* window, moecl_device_array* out_memory);
/// Copies `bytes` of `source` to `offset_bytes` of the memory of `peer`, which may be this rank. Puts of one epoch into
/// the same bytes arrive in no defined order. A refusal does not end the group.
///
/// Async: runs after the commands enqueued on this rank's stream, and those enqueued on the peer's stream at the last
/// fence; the call waits for nobody. No command before the next fence may change `source`.
/// Errors: invalid_argument  no such rank, or the range leaves the window or the cl_mem
moecl_status moecl_window_put(moecl_window* window, int32_t peer, uint64_t offset_bytes, moecl_device_array source,
                              uint64_t bytes);
/// Later commands of this rank's stream see every rank's puts of the epoch that ends, and may change what this rank has
/// put. Puts of the next epoch run after the commands that the stream holds now.
moecl_status moecl_window_fence(moecl_window* window);

#ifdef __cplusplus
}
#endif
#endif
