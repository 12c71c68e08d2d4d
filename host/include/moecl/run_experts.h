#ifndef MOECL_RUN_EXPERTS_H
#define MOECL_RUN_EXPERTS_H
/// @file
/// Runs the experts of a layer within the caller's exchange. A runtime dispatches by itself, or by
/// <moecl/token_dispatcher.h>, and runs moecl's experts over the rows that it received.
#include <moecl/token_dispatcher.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Rows of the E experts of a layer, or of the places of this rank. L is the width of the rows.
///
/// The inputs decide what the experts give back (moecl_expert_output): plain rows; with rows.weights, weighted rows;
/// with rows.slot_rows, the sum of each token's rows.
typedef struct moecl_expert_args {
  uint64_t size_bytes;
  /// As a dispatcher or the caller's exchange gave them. These fields are read: rows, source_rows, x, x_scale, index,
  /// index_divisor, row_ends, rows_per_expert, weights; for sums also slot_rows, tokens and slots. With rows_per_expert
  /// M, x is [E, M, L], and each expert uses its first rows
  const moecl_routed_rows* rows;
  /// replaces rows.row_ends. Shape: [E] int32 or int64. A negative count, a count above an expert's room, or counts of
  /// more rows than there are set the fault word, and are cut
  moecl_device_array expert_num_tokens;
  int32_t expert_num_tokens_dtype;  ///< MOECL_I32 or MOECL_I64; 0: i32
  int32_t x_dtype;                  ///< 0: the layer's; for codes, with rows.x_scale: MOECL_I8 or MOECL_F8_E4M3
  int32_t x_group;                  ///< columns of codes that share a scale; 0: all of a row
  int32_t out_dtype;                ///< moecl_dtype; 0: f32
  int64_t expected_rows;            ///< rows that are likely to come; selects the kernels. 0: rows.rows
  /// Shape: [rows, L]; for sums [tokens, L]. Contents past an expert's rows are undefined afterwards
  moecl_device_array out;
  moecl_device_array workspace;  ///< size: the functions below; for this pass alone until its last command completes
  uint64_t workspace_bytes;      ///< 0: to the end of the cl_mem
  moecl_device_array fault;      ///< optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after
} moecl_expert_args;

/// Bytes of workspace for `rows` rows. `slots`: tokens * slots if the experts sum, else 0.
moecl_status moecl_layer_experts_workspace_bytes(const moecl_layer* layer, int64_t rows, int64_t slots,
                                                 uint64_t* out_workspace_bytes);
/// Runs the experts alone. The caller does the router, the shared experts, and weights on the experts' input.
///
/// Async: enqueues kernels only; never stops the host. Empty: no rows give sums of 0; out_event is given as always
/// Errors: invalid_argument  before anything is enqueued; unsupported  rows without room of equal size if CLBlast
///         multiplies
/// @param num_wait_events,wait_events,out_event  As in moecl_layer_forward
moecl_status moecl_layer_run_experts(const moecl_layer* layer, moecl_stream* stream, const moecl_expert_args* args,
                                     uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                     struct _cl_event** out_event);
/// The same for a rank's places. By this rank alone.
moecl_status moecl_parallel_layer_experts_workspace_bytes(const moecl_parallel_layer* layer, int64_t rows,
                                                          int64_t slots, uint64_t* out_workspace_bytes);
/// The same, on the rank's stream. A rank that has a part of every expert gives its part of the rows' sums.
moecl_status moecl_parallel_layer_run_experts(moecl_parallel_layer* layer, const moecl_expert_args* args,
                                              uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                              struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
