#ifndef MOECL_TOKEN_DISPATCHER_H
#define MOECL_TOKEN_DISPATCHER_H
/// @file
/// Sends tokens to the ranks of their experts and brings the results back, around experts of the caller.
///
/// Every rank makes a dispatcher and calls the same functions in the same order, in its own host thread. Calls by all
/// ranks follow the rules of rank_group.h. dispatch/STRATEGIES.md describes what travels between ranks.
#include <moecl/parallel_layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's end of a strategy, with the memory of a step.
typedef struct moecl_token_dispatcher moecl_token_dispatcher;

/// What the experts give back, and so who multiplies by the router's weights and who sums. Source: TopKWeightAndReduce
/// of vLLM
typedef enum moecl_expert_output {
  MOECL_EXPERT_ROWS = 0,           ///< rows as the products gave them: the combine multiplies by the weights, and sums
  MOECL_EXPERT_WEIGHTED_ROWS = 1,  ///< rows multiplied by moecl_routed_rows.weights: the combine sums
  /// one row per token that came: the sum of its weighted rows (moecl_routed_rows.slot_rows), or 0 if it has no row.
  /// The combine only brings the sums home
  MOECL_EXPERT_SUMS = 2
} moecl_expert_output;

/// Options of a dispatcher over R ranks; the same on every rank. Rank = dp_rank * tp + tp_rank.
typedef struct moecl_token_dispatcher_options {
  uint64_t size_bytes;
  int64_t hidden;           ///< H
  int32_t experts;          ///< E
  int32_t top_k;            ///< K. Range: [1, E]
  int32_t dtype;            ///< moecl_dtype of the tokens; 0: f32
  int32_t strategy;         ///< moecl_strategy, not AUTO
  int32_t tp;               ///< ranks that bring the same tokens; divides R. 0: 1
  int32_t expert_sharding;  ///< moecl_expert_sharding
  int32_t wire;             ///< moecl_wire_format
  int32_t ranks_per_node;   ///< ranks of a node, which reach each other faster than others; divides R. 0: all
  int32_t beside;           ///< not 0: exchanges run on a second queue beside the rank's stream
  int32_t partial_sums;     ///< not 0: each rank of a tp group gets a part of the sums; the parts add up to the sums
  int32_t batched;          ///< not 0: every expert has room for the same number of rows; not with a wire
  int32_t expert_output;    ///< moecl_expert_output
  int64_t rows_per_expert;  ///< batched: rows of that room, at least the tokens of all ranks; 0: as many as may come
} moecl_token_dispatcher_options;

/// The tokens of a step.
typedef struct moecl_dispatch_args {
  uint64_t size_bytes;
  int64_t tokens;              ///< T; ranks of a tp group have the same ones
  moecl_device_array x;        ///< Shape: [T, H] of the dispatcher's dtype
  moecl_device_array ids;      ///< Shape: [T, K] int32 or int64, as ids_dtype says; -1: no expert
  moecl_device_array weights;  ///< optional, on every rank or on none. Shape: [T, K] f32; absent: 1
  moecl_device_array fault;    ///< optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after
  /// optional, on every rank or on none: tokens of each of the R ranks. All ranks then agree about these counts and
  /// about whether weights come. The dispatcher does not ask them, and if the kernels of all ranks wait for each other,
  /// host threads do not meet
  const int64_t* tokens_of_ranks;
  /// MC2: tokens of a rank's share that a window has room for, the same on every rank; 0: those of the rank with most
  int64_t capacity;
  int32_t ids_dtype;  ///< MOECL_I32 or MOECL_I64; 0: i32
  int32_t reserved;   ///< 0
} moecl_dispatch_args;

/// The rows that this rank's experts received, in the order expert, source rank, token, k. With MC2 over several nodes
/// (ranks_per_node) the order is expert, index of the source within its node, source node, token, k. Row j is row
/// index[j] / index_divisor of x; without an index, row j. The rows of local expert e end before row_ends[e].
/// Lifetime: owned by the dispatcher until the combine of the step.
typedef struct moecl_routed_rows {
  uint64_t size_bytes;
  int64_t rows;                 ///< upper bound; row_ends, on the device, has the actual number
  int64_t source_rows;          ///< N
  moecl_device_array x;         ///< Shape: [N, H] of the dispatcher's dtype, or of codes of the wire format
  moecl_device_array x_scale;   ///< for codes. Shape: [N] f32; mxfp8: [N, ceil(H / 32)] e8m0
  moecl_device_array index;     ///< optional. Shape: [rows] int32
  moecl_device_array row_ends;  ///< cumulative. Shape: [local experts] int32; [1] if there are none
  int32_t index_divisor;
  int32_t first_expert;   ///< first of the linear run of the E experts that this rank has
  int32_t local_experts;  ///< length of that run
  int32_t reserved;       ///< 0
  /// 0: the rows of the experts are contiguous, one expert after the other. Else batched: the rows of local expert e
  /// begin at row e * rows_per_expert, and their number is row_ends[e] - row_ends[e - 1]
  int64_t rows_per_expert;
  moecl_device_array weights;  ///< for experts that weight, if weights were brought. Shape: [rows] f32
  int64_t tokens;              ///< M: tokens that came; 0 unless the experts sum
  int64_t slots;               ///< S: slots of each of these tokens
  /// for experts that sum: the rows of each token. Shape: [M, S] int32, negative if an expert of the token is not here
  moecl_device_array slot_rows;
} moecl_routed_rows;

/// By all ranks, with the same options.
/// Errors: invalid_argument  options do not fit the ranks or each other; unsupported  MC2 or all-to-all with parts of
///         experts
moecl_status moecl_token_dispatcher_create(moecl_communicator* communicator,
                                           const moecl_token_dispatcher_options* options,
                                           moecl_token_dispatcher** out_dispatcher);
/// NULL is no error. The rank's commands must have completed. The communicator may be destroyed before.
moecl_status moecl_token_dispatcher_destroy(moecl_token_dispatcher* dispatcher);

/// Sends every token to the ranks of its experts, on the rank's stream, by all ranks. Same as begin, hook and receive.
///
/// Async: waits for the peers' host threads; stops the host for a device only in all-to-all, once.
/// Empty: T = 0 takes part in the exchange.
/// Errors: invalid_argument; deadline_exceeded  a peer failed or did not come
/// Lifetime: x, ids, weights and fault must not be written or released before moecl_finish_combine (or
/// moecl_token_combine) of this step has returned, which is stricter than rank_group.h. Commands given to the rank's
/// stream after that may overwrite them.
/// @param out_rows  Filled as far as its size_bytes reaches.
moecl_status moecl_token_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args,
                                  moecl_routed_rows* out_rows);
/// Brings home the weighted sums of the experts' rows (plain sums if the experts weight). Same as begin and finish.
///
/// Async: by all ranks; waits for the peers' host threads, never for a device. Errors: as moecl_token_dispatch
/// Lifetime: expert_rows and out stay valid until this call has returned; with the two halves, until
/// moecl_finish_combine has.
/// @param expert_rows  Shape: [rows, H] f32, in the order of the routed rows; from experts that sum [tokens, H] f32.
/// @param out          Shape: [T, H] f32
moecl_status moecl_token_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out);

/// The first of the steps of moecl_token_dispatch and moecl_token_combine. Between the steps, the rank's stream may run
/// work that does not change their tensors; with `beside`, bytes travel meanwhile. Lifetime, Errors: as
/// moecl_token_dispatch
moecl_status moecl_begin_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args);
/// Launches the rest. The caller may delay it as long as it likes. All-to-all reads its split sizes here.
moecl_status moecl_dispatch_hook(moecl_token_dispatcher* dispatcher);
/// The rank's stream waits for the rows.
moecl_status moecl_receive_dispatch(moecl_token_dispatcher* dispatcher, moecl_routed_rows* out_rows);
/// Launches the way back. `out` is written once the stream has passed moecl_finish_combine.
moecl_status moecl_begin_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out);
/// The rank's stream waits for what comes home, and sums it.
moecl_status moecl_finish_combine(moecl_token_dispatcher* dispatcher);

/// For the caller's own exchange, like torch.histc in TokenDispatcherWithAll2AllV: counts[e] is the number of ids equal
/// to e. Other ids, such as -1, are not counted.
///
/// Async: enqueues. Empty: no ids give counts of 0. Errors: invalid_argument
/// @param ids        Shape: [count]
/// @param ids_dtype  MOECL_I32 or MOECL_I64; 0: i32
/// @param counts     out. Shape: [experts] int32
moecl_status moecl_histogram(moecl_stream* stream, moecl_device_array ids, int32_t ids_dtype, int64_t count,
                             moecl_device_array counts, int32_t experts);
/// The same for torch.repeat_interleave: out[row] = g % modulus for the rows of group g, and -1 for rows past the last
/// group. If a group is one expert of one source rank, and modulus the number of experts per rank, out holds the local
/// ids of the received rows.
///
/// Async: one kernel. Errors: invalid_argument
/// @param row_ends  Shape: [groups] int32, cumulative. @param modulus  at least 1. @param out  out. Shape: [rows] int32
moecl_status moecl_repeat_interleave(moecl_stream* stream, moecl_device_array row_ends, int32_t groups, int32_t modulus,
                                     moecl_device_array out, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
