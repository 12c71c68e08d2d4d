#ifndef MOECL_TOKEN_DISPATCHER_H
#define MOECL_TOKEN_DISPATCHER_H
/// @file
/// How tokens travel to the ranks of their experts and back, around experts of the caller's own.
///
/// Every rank makes a dispatcher and calls the same functions in the same order, in a host thread of its own; what
/// rank_group.h says of calls by all ranks holds here too. dispatch/STRATEGIES.md has what travels.
#include <moecl/parallel_layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's end of a strategy, with the memory of a step.
typedef struct moecl_token_dispatcher moecl_token_dispatcher;

/// What experts give back: who multiplies by the router's weights, and who sums. Source: TopKWeightAndReduce of vLLM
typedef enum moecl_expert_output {
  MOECL_EXPERT_ROWS = 0,           ///< rows as the products gave them: the combine multiplies, and sums
  MOECL_EXPERT_WEIGHTED_ROWS = 1,  ///< rows multiplied by moecl_routed_rows.weights: the combine sums
  /// of each token that came one row, the sum of its weighted rows (moecl_routed_rows.slot_rows), of a token without
  /// any row 0: the combine brings them home
  MOECL_EXPERT_SUMS = 2
} moecl_expert_output;

/// The same on every rank. Rank = dp_rank * tp + tp_rank; R ranks.
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
  int32_t ranks_per_node;   ///< neighbours that reach each other faster than others; divides R. 0: all
  int32_t beside;           ///< not 0: exchanges run on a queue beside the rank's stream
  int32_t partial_sums;     ///< not 0: ranks of a tp group get parts of their sums, which added up are the sums
  int32_t batched;          ///< not 0: rows of each expert stand in room of equal size; not with a wire
  int32_t expert_output;    ///< moecl_expert_output
  int64_t rows_per_expert;  ///< batched: that room, at least the tokens of all ranks; 0: as many as may come
} moecl_token_dispatcher_options;

/// The tokens of a step.
typedef struct moecl_dispatch_args {
  uint64_t size_bytes;
  int64_t tokens;              ///< T; ranks of a tp group have the same ones
  moecl_device_array x;        ///< Shape: [T, H] of the dispatcher's dtype
  moecl_device_array ids;      ///< Shape: [T, K] int32 or int64, as ids_dtype says; -1: no expert
  moecl_device_array weights;  ///< optional, on every rank or on none. Shape: [T, K] f32; absent: 1
  moecl_device_array fault;    ///< optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after
  /// optional, on every rank or on none: tokens of each of the R ranks, about which all agree, as about whether weights
  /// come. Then nobody asks, and where kernels of all ranks wait for each other host threads do not meet
  const int64_t* tokens_of_ranks;
  /// tokens of a rank's share that MC2 has windows for, the same on every rank; 0: as many as the rank with most has
  int64_t capacity;
  int32_t ids_dtype;  ///< MOECL_I32 or MOECL_I64; 0: i32
  int32_t reserved;   ///< 0
} moecl_dispatch_args;

/// The rows that this rank's experts got, in the order expert, source rank, token, k; of MC2 over several nodes
/// (ranks_per_node): expert, index of the source within its node, source node, token, k. Row j is row index[j] /
/// index_divisor of x, without an index row j. Those of local expert e end before row_ends[e].
/// Lifetime: the dispatcher's until the step's combine.
typedef struct moecl_routed_rows {
  uint64_t size_bytes;
  int64_t rows;                 ///< the most there can be; row_ends, on the device, says how many there are
  int64_t source_rows;          ///< N
  moecl_device_array x;         ///< Shape: [N, H] of the dispatcher's dtype, or codes of the wire's
  moecl_device_array x_scale;   ///< of codes. Shape: [N] f32, of mxfp8 [N, ceil(H / 32)] e8m0
  moecl_device_array index;     ///< optional. Shape: [rows] int32
  moecl_device_array row_ends;  ///< Shape: [local experts] int32, cumulative; [1] where there are none
  int32_t index_divisor;
  int32_t first_expert;   ///< of this rank, which has a linear run of the E
  int32_t local_experts;  ///< how many it has
  int32_t reserved;       ///< 0
  /// 0: rows stand one expert after the other. Else batched: those of local expert e begin at row e * rows_per_expert,
  /// and there are row_ends[e] - row_ends[e - 1]
  int64_t rows_per_expert;
  moecl_device_array weights;  ///< of experts that weight, where weights were brought. Shape: [rows] f32
  int64_t tokens;              ///< M that came; 0 but for experts that sum
  int64_t slots;               ///< S of each of them
  /// of experts that sum: which rows are a token's. Shape: [M, S] int32, negative where an expert of it is not here
  moecl_device_array slot_rows;
} moecl_routed_rows;

/// By all ranks, with the same options.
/// Errors: invalid_argument  options that do not fit the ranks or each other; unsupported  MC2 and all-to-all where
///         experts are not whole
moecl_status moecl_token_dispatcher_create(moecl_communicator* communicator,
                                           const moecl_token_dispatcher_options* options,
                                           moecl_token_dispatcher** out_dispatcher);
/// NULL is no error. The rank's commands must have completed. The communicator may go before.
moecl_status moecl_token_dispatcher_destroy(moecl_token_dispatcher* dispatcher);

/// Brings every token to the ranks of its experts, on the rank's stream, by all ranks: begin, hook and receive.
///
/// Async: waits for the peers' host threads; stops the host for a device only in all-to-all, once.
/// Empty: T = 0 takes part in the exchange.
/// Errors: invalid_argument; deadline_exceeded  a peer failed or did not come
/// Lifetime: x, ids, weights and fault are neither written nor released before moecl_finish_combine (or
///           moecl_token_combine) of this step has returned, which is stricter than rank_group.h. Commands given to the
///           rank's stream after that may overwrite them.
/// @param out_rows  Filled as far as its size_bytes reaches.
moecl_status moecl_token_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args,
                                  moecl_routed_rows* out_rows);
/// Brings the weighted sums of the experts' rows home, of experts that weight their plain sums: begin and finish.
///
/// Async: by all ranks; waits for the peers' host threads, never for a device. Errors: as moecl_token_dispatch
/// Lifetime: expert_rows and out stay until this call has returned, of the two halves moecl_finish_combine.
/// @param expert_rows  Shape: [rows, H] f32, as they were routed; of experts that sum [tokens, H] f32.
/// @param out          Shape: [T, H] f32
moecl_status moecl_token_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out);

/// The first of the steps that moecl_token_dispatch and moecl_token_combine are made of. Between them the rank's stream
/// is free for what leaves their tensors as they are; with `beside` bytes travel meanwhile. Lifetime, Errors: as
/// moecl_token_dispatch
moecl_status moecl_begin_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args);
/// Launches the rest, as late as the caller likes; all-to-all reads its sizes here.
moecl_status moecl_dispatch_hook(moecl_token_dispatcher* dispatcher);
/// The rank's stream waits for the rows.
moecl_status moecl_receive_dispatch(moecl_token_dispatcher* dispatcher, moecl_routed_rows* out_rows);
/// Launches the way back. `out` is written by the time that the stream is past moecl_finish_combine.
moecl_status moecl_begin_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out);
/// The rank's stream waits for what comes home, and sums it.
moecl_status moecl_finish_combine(moecl_token_dispatcher* dispatcher);

/// For an exchange of one's own, as TokenDispatcherWithAll2AllV asks torch.histc: counts[e] = how many ids are e.
/// Others, -1 among them, are not counted.
///
/// Async: enqueues. Empty: no ids leave counts of 0. Errors: invalid_argument
/// @param ids        Shape: [count]
/// @param ids_dtype  MOECL_I32 or MOECL_I64; 0: i32
/// @param counts     out. Shape: [experts] int32
moecl_status moecl_histogram(moecl_stream* stream, moecl_device_array ids, int32_t ids_dtype, int64_t count,
                             moecl_device_array counts, int32_t experts);
/// The same of torch.repeat_interleave: out[row] = g % modulus for the rows of group g, -1 for rows past the last. With
/// the experts of each source rank as groups and modulus experts a rank these are the ids of rows that came.
///
/// Async: one kernel. Errors: invalid_argument
/// @param row_ends  Shape: [groups] int32, cumulative. @param modulus  at least 1. @param out  out. Shape: [rows] int32
moecl_status moecl_repeat_interleave(moecl_stream* stream, moecl_device_array row_ends, int32_t groups, int32_t modulus,
                                     moecl_device_array out, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
