#ifndef MOECL_H
#define MOECL_H
/// @file
/// moecl's C interface: one MoE layer on one OpenCL device. C99 and C++. Operators are in npu_FAMILY.h, groups of
/// ranks in rank_group.h, layers over ranks in parallel_layer.h.
///
/// Status: Every function returns MOECL_OK or says what kind of thing went wrong; moecl_last_error_message() says it in
/// words, with the numbers. Results come through `out_` parameters, untouched on failure. Arguments are checked before
/// anything is enqueued. No exception leaves this interface; the library never prints and never aborts.
/// Structs: Set every struct to zero, then `size_bytes` to its sizeof. Zero is each field's default, so a program built
/// with an older header runs on a newer library. The reverse runs too unless it sets a field that the library does not
/// know, which is an error.
/// Handles: A handle is destroyed once, in any order: a stream and a layer keep what they need of their context. The
/// caller's cl_context and cl_command_queue are retained when wrapped and released when their handle is destroyed. A
/// cl_mem is only used; as OpenCL has it, it may be released once its commands are enqueued.
/// Threads: Contexts may be used from several threads. A stream is driven by one thread at a time. Passes of a layer
/// may run at once in several threads, each with its own stream and workspace. With a memory budget calls of one layer,
/// prefetches too, are made one at a time, on any streams of the device. While weights are replaced no other call of
/// the layer is made. Processes: A driver's threads do not follow a fork(). Once a process has used OpenCL here, every
/// function of this interface fails in its forked children with MOECL_UNSUPPORTED, and destroys nothing. Fork before
/// the first call, or start programs by posix_spawn, or fork and exec. Sizes: T tokens, E experts, K experts a token, H
/// hidden size, I intermediate size. Tensors are row-major and contiguous. Units are elements unless a name ends in
/// `_bytes`.
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// OpenCL's handle types as CL/cl.h declares them: with it included, `struct _cl_mem*` is `cl_mem`, and so on.
struct _cl_platform_id;
struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_event;

/// What kind of thing went wrong.
typedef enum moecl_status {
  MOECL_OK = 0,
  MOECL_INVALID_ARGUMENT = 1,   ///< a shape, dtype, option or id the caller passed is wrong
  MOECL_UNSUPPORTED = 2,        ///< the request is meaningful, this library or device cannot do it
  MOECL_INVALID_DATA = 3,       ///< a file or its contents are malformed or contradict each other
  MOECL_IO_ERROR = 4,           ///< the operating system refused a file operation
  MOECL_NO_DEVICE = 5,          ///< no usable OpenCL platform or device
  MOECL_OUT_OF_MEMORY = 6,      ///< the host or a device could not allocate
  MOECL_BUILD_FAILED = 7,       ///< an OpenCL program did not compile
  MOECL_DEVICE_ERROR = 8,       ///< an OpenCL call failed; the message has its code
  MOECL_DEADLINE_EXCEEDED = 9,  ///< a wait ran out of time
  MOECL_INTERNAL_ERROR = 10     ///< a failure moecl did not foresee: a bug of moecl
} moecl_status;

/// Of these headers; moecl_version says that of the library.
#define MOECL_VERSION_MAJOR 0
#define MOECL_VERSION_MINOR 1  ///< see MOECL_VERSION_MAJOR
#define MOECL_VERSION_PATCH 0  ///< see MOECL_VERSION_MAJOR

/// "0.1.0": the version of the library that runs.
const char* moecl_version(void);
/// The commit that it was built of, 12 digits, with "+" where files differed from it; "unknown" outside git.
const char* moecl_commit(void);
/// "invalid_argument"; "unknown" for a number that is no status.
const char* moecl_status_name(moecl_status status);
/// What went wrong in this thread's last call that failed, cut at 4095 bytes; "" when none has.
/// Lifetime: until the thread's next call that fails.
const char* moecl_last_error_message(void);

// ---------------------------------------------------------------------------------------------------------- devices

/// What moecl_device_describe says of a device.
typedef struct moecl_device_info {
  uint64_t size_bytes;
  struct _cl_platform_id* platform;
  struct _cl_device_id* device;  ///< NULL where a platform has no device
  uint64_t global_mem_bytes;
  uint64_t max_alloc_bytes;
  uint64_t compute_units;
  // Texts are cut to fit and always end with NUL.
  char platform_name[128];
  char name[128];
  char driver_version[128];
  char refused[256];  ///< why moecl cannot use it; "" when it can
} moecl_device_info;

/// Devices of all OpenCL platforms, in the ICD loader's order, usable or not. No platform at all gives 0 and MOECL_OK.
moecl_status moecl_device_count(int32_t* out_count);
/// @param index     Range: [0, count)
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_device_describe(int32_t index, moecl_device_info* out_info);

// ---------------------------------------------------------------------------------------------- contexts and streams

/// A cl_context with its compiled programs, log and trace.
typedef struct moecl_context moecl_context;
/// An in-order cl_command_queue.
typedef struct moecl_stream moecl_stream;

/// How much a line matters.
typedef enum moecl_log_level {
  MOECL_LOG_DEBUG = 1,
  MOECL_LOG_INFO = 2,
  MOECL_LOG_WARNING = 3,
  MOECL_LOG_ERROR = 4,
  MOECL_LOG_OFF = 5  ///< only a threshold
} moecl_log_level;

/// A choice that may be left to the environment.
typedef enum moecl_switch { MOECL_DEFAULT = 0, MOECL_ON = 1, MOECL_OFF = 2 } moecl_switch;

/// Receives one line; `message` lives during the call. Must return, and not by an exception or longjmp.
/// Threads: called on any thread that calls moecl.
typedef void (*moecl_log_callback)(void* user, moecl_log_level level, const char* message);

/// Where a driver compiles what it has not compiled before.
typedef enum moecl_compile {
  MOECL_COMPILE_HELPER = 1,     ///< in a process of its own, whose death is an error (build_failed)
  MOECL_COMPILE_IN_PROCESS = 2  ///< here: a compiler that dies takes the process along
} moecl_compile;

/// What is left at zero is taken from the environment variables named here, then from the default.
typedef struct moecl_context_options {
  uint64_t size_bytes;
  moecl_log_callback log;    ///< NULL: log lines are dropped
  void* log_user;            ///< handed to `log`; must live as long as the context and what was made from it
  const char* cache_dir;     ///< of compiled programs. MOECL_CACHE_DIR, else $XDG_CACHE_HOME/moecl/cl
  uint64_t cache_max_bytes;  ///< 256 MiB
  int32_t log_level;         ///< moecl_log_level: the least that reaches `log`. MOECL_LOG, else warning
  int32_t disk_cache;        ///< moecl_switch: keep compiled programs on disk. MOECL_CACHE, else on
  /// moecl_switch: record kernels and transfers; streams that moecl makes then have profiling queues. Off
  int32_t trace;
  int32_t compile;               ///< moecl_compile. MOECL_COMPILE, else helper
  uint64_t compile_deadline_ms;  ///< longest wait for a helper to compile a program. MOECL_COMPILE_DEADLINE, else 300 s
} moecl_context_options;

/// A context of one device, by its number in moecl_device_describe.
/// @param options  NULL for the defaults.
/// Errors: invalid_argument  no device of that number; no_device  it is refused, the message says why
moecl_status moecl_context_create(int32_t device_index, const moecl_context_options* options,
                                  moecl_context** out_context);
/// A context of the first usable device whose platform and device names contain the given texts, whatever the case of
/// letters; NULL and "" match all.
/// Errors: no_device  none matches; the message lists what was found
moecl_status moecl_context_create_matching(const char* platform_contains, const char* device_contains,
                                           const moecl_context_options* options, moecl_context** out_context);
/// Retains the caller's cl_context.
moecl_status moecl_context_wrap(struct _cl_context* cl_context, const moecl_context_options* options,
                                moecl_context** out_context);
/// NULL is no error. Saves the programs, as below, once streams and layers made from it are destroyed too.
moecl_status moecl_context_destroy(moecl_context* context);
/// Writes the programs compiled so far to the disk cache; what cannot be written is a log line. For programs that
/// seldom destroy their context: call it once after the first results. Threads: any
///
/// Cost: PoCL makes a program's binary when asked, about 0.1 s a kernel, each once.
moecl_status moecl_context_save_programs(moecl_context* context);
/// The cl_context, to make cl_mem objects with. Lifetime: the context's; retain it to keep it longer.
moecl_status moecl_context_native(const moecl_context* context, struct _cl_context** out_cl_context);

/// What a context has done so far.
typedef struct moecl_context_info {
  uint64_t size_bytes;
  // Counts so far, of everything that was made from the context.
  uint64_t host_syncs;          ///< calls that stopped the host for a device: finish, blocking reads and writes
  uint64_t programs_built;      ///< compiled from source
  uint64_t programs_from_disk;  ///< read from the disk cache
  uint64_t kernels_launched;
} moecl_context_info;
/// @param out_info  Filled as far as its size_bytes reaches. Threads: any
moecl_status moecl_context_describe(const moecl_context* context, moecl_context_info* out_info);

/// Writes what was recorded so far as Chrome JSON, for ui.perfetto.dev. Stops the host until those commands are
/// complete. Host memory that runs out meanwhile ends the process.
/// Errors: invalid_argument  the context was made without `trace`; io_error
moecl_status moecl_trace_write(moecl_context* context, const char* path);

/// @param device_index  Which device of the context; 0 for a context that moecl made.
moecl_status moecl_stream_create(moecl_context* context, int32_t device_index, moecl_stream** out_stream);
/// Retains the caller's queue.
/// Errors: invalid_argument  the queue is out-of-order, or of another cl_context
moecl_status moecl_stream_wrap(moecl_context* context, struct _cl_command_queue* cl_queue, moecl_stream** out_stream);
/// NULL is no error.
moecl_status moecl_stream_destroy(moecl_stream* stream);
/// The cl_command_queue. Lifetime: the stream's; retain it to keep it longer.
moecl_status moecl_stream_native(const moecl_stream* stream, struct _cl_command_queue** out_cl_queue);
/// Stops the host until everything enqueued so far has completed.
/// Errors: device_error  a command failed
moecl_status moecl_stream_finish(moecl_stream* stream);
/// A marker: what the stream is given next waits for those events, and the event tells that all before has completed.
/// So everything that works on a stream, collectives and passes over ranks too, takes a wait list and gives an event.
/// Async: enqueues at most one command, which needs no flush by the caller.
/// @param num_wait_events  0 exactly when wait_events is NULL
/// @param out_event        NULL, or receives an event which the caller releases
moecl_status moecl_stream_mark(moecl_stream* stream, uint32_t num_wait_events, struct _cl_event* const* wait_events,
                               struct _cl_event** out_event);

// ----------------------------------------------------------------------------------------------------------- layers

/// One MoE layer with its weights on one device.
typedef struct moecl_layer moecl_layer;

/// Of layers f32, f16 and bf16; of quantized weights all but MOECL_BOOL, MOECL_I32 and MOECL_I64; of operators those up
/// to MOECL_I64 (npu.h).
typedef enum moecl_dtype {
  MOECL_DEFAULT_DTYPE = 0,
  MOECL_F32 = 1,
  MOECL_F16 = 2,
  MOECL_BF16 = 3,
  MOECL_I8 = 4,
  MOECL_U8 = 5,
  MOECL_BOOL = 6,
  MOECL_I32 = 7,
  MOECL_I64 = 8,
  MOECL_F8_E4M3 = 9,
  MOECL_F8_E5M2 = 10,
  MOECL_E8M0 = 11,  ///< of scales: powers of two, a byte each. Source: OCP Microscaling Formats 1.0
  MOECL_I4 = 12,    ///< two's complement
  MOECL_U4 = 13,    ///< counts from its zero point, 8 if none is given (MOECL_U8: 128)
  MOECL_F4_E2M1 = 14,
  MOECL_F6_E2M3 = 15,
  MOECL_F6_E3M2 = 16
} moecl_dtype;

/// Where scores come from: over all experts before the choice, or over the chosen logits after it.
typedef enum moecl_score_order { MOECL_SCORE_BEFORE_TOP_K = 0, MOECL_SCORE_AFTER_TOP_K = 1 } moecl_score_order;
/// How a logit becomes a score.
typedef enum moecl_score {
  MOECL_SCORE_SOFTMAX = 0,
  MOECL_SCORE_SIGMOID = 1,
  MOECL_SCORE_NONE = 2,
  MOECL_SCORE_SQRTSOFTPLUS = 3,  ///< sqrt(log(1 + exp(x)))
  MOECL_SCORE_SPARSE_MIXER = 4   ///< Phi-3.5-MoE's; needs MOECL_SCORE_AFTER_TOP_K
} moecl_score;
/// By what of its experts' choices a group is compared.
typedef enum moecl_group_score { MOECL_GROUP_MAX = 0, MOECL_GROUP_SUM_OF_TOP_2 = 1 } moecl_group_score;

/// How an expert's gate product g and up product u become one.
typedef enum moecl_activation {
  MOECL_SILU = 0,       ///< silu(g) * u
  MOECL_GELU = 1,       ///< 0.5 g (1 + erf(g / sqrt 2)) * u
  MOECL_GELU_TANH = 2,  ///< the tanh approximation of gelu(g) * u
  MOECL_SWIGLUOAI = 3,  ///< g = min(g, limit), u = clamp(u, -limit, limit): (u + 1) * g * sigmoid(alpha * g)
  MOECL_RELU2 = 4,      ///< max(g, 0)^2 * u
  MOECL_RELU = 5,       ///< max(g, 0) * u
  MOECL_FAST_GELU = 6   ///< g * sigmoid(1.702 g) * u
} moecl_activation;

/// How the experts' rows stand in memory between the products.
typedef enum moecl_expert_layout {
  MOECL_LAYOUT_STANDARD = 0,  ///< concatenated in expert order
  MOECL_LAYOUT_BATCHED = 1    ///< room of equal size for every expert
} moecl_expert_layout;

/// How the panels of experts' weights stand on a device (`moecl run --layout`).
typedef enum moecl_panel_layout {
  MOECL_PANELS_AUTO = 0,     ///< as is fastest there
  MOECL_PANELS_N_MAJOR = 1,  ///< the columns of one k side by side: every kernel reads it
  MOECL_PANELS_K_MAJOR = 2,  ///< 128 k of a column, of 8-bit codes, for tensor cores
  MOECL_PANELS_K_WORDS = 3   ///< 32 bits of a column, of 4, 8 or 16 bits, for dot products of CPUs
} moecl_panel_layout;

/// To which power of two a scale is rounded that comes from its group's numbers.
typedef enum moecl_scale_rounding {
  MOECL_ROUND_STANDARD = 0,     ///< e8m0: the largest magnitude's, down. Real scales: not rounded
  MOECL_ROUND_RATIO_UP = 1,     ///< of the largest magnitude / the format's largest number, up (DeepGEMM, ModelOpt)
  MOECL_ROUND_AMAX_UP = 2,      ///< of the largest magnitude, up (Quark, ceil)
  MOECL_ROUND_AMAX_EVEN = 3,    ///< the same, up from 1.75 times a power of two on (compressed-tensors)
  MOECL_ROUND_AMAX_NEAREST = 4  ///< the same, up where rounding the mantissa leads there (Quark, even)
} moecl_scale_rounding;

/// How the rows of a product are quantized just before it.
typedef struct moecl_operand_quant {
  int32_t dtype;          ///< moecl_dtype of the codes; 0: they stay plain
  int32_t scale_dtype;    ///< MOECL_F32, MOECL_E8M0, or MOECL_F8_E4M3 (times one number for all rows); 0: MOECL_F32
  int64_t group_rows;     ///< rows that share a scale; 0: one; -1: all
  int64_t group_columns;  ///< columns of a row that share a scale; 0: all
  int32_t zero_points;    ///< not 0: integer codes count from a zero point of their group
  int32_t static_scale;   ///< not 0: the scale is given with the weights; else it comes from the rows
  int32_t rounding;       ///< moecl_scale_rounding
  float max_amax;         ///< real scales: the largest magnitude counts as at most this; 0: no limit
  float min_scale;        ///< real scales: the least
  int32_t reserved;       ///< 0
} moecl_operand_quant;

/// Who gives its device memory to others, of experts that have a memory budget: the one that ...
typedef enum moecl_residency {
  MOECL_RESIDENCY_LEAST_STALE = 0,  ///< was used least, where a use counts nine tenths of itself a pass later
  MOECL_RESIDENCY_LRU = 1,          ///< was used longest ago
  MOECL_RESIDENCY_STATIC = 2        ///< has the least of the loads that were given
} moecl_residency;

/// What is done about an expert that is needed and not in device memory.
typedef enum moecl_missed_experts {
  MOECL_MISSED_AUTO = 0,     ///< in place on CPUs, whose memory is the host's; else fetched
  MOECL_MISSED_FETCHED = 1,  ///< it takes the memory of another one
  MOECL_MISSED_IN_PLACE = 2  ///< products read it in host memory. Then all experts are there, and residency only counts
} moecl_missed_experts;

/// What the device did for a memory budget since a layer was loaded.
typedef struct moecl_residency_counts {
  uint64_t size_bytes;
  int64_t resident;         ///< experts that fit device memory together
  uint64_t budget_bytes;    ///< which they take there
  int64_t hits;             ///< experts with rows that were there, over passes
  int64_t misses;           ///< that were not
  uint64_t fetched_bytes;   ///< theirs, which came from host memory: copied, or read where they are; and those of
                            ///< experts that were prefetched
  int64_t prefetched;       ///< experts that moecl_layer_prefetch brought
  int64_t prefetched_hits;  ///< hits of these, each once
} moecl_residency_counts;

/// How a layer is stored and run.
typedef struct moecl_layer_options {
  uint64_t size_bytes;
  /// moecl_dtype of activations and plain weights on the device; 0: that of the first expert's weights; where those are
  /// quantized that of the router, or if it is f32 of config.json, else of 16-bit scales
  int32_t dtype;
  int32_t expert_layout;    ///< moecl_expert_layout
  int64_t rows_per_expert;  ///< batched layout: rows each expert has room for; 0: enough for any routing
  /// Most tokens that run at once; longer inputs run in chunks, one after the other. 0: the largest power of two in
  /// [64, 65536] whose workspace fits 256 MiB (on a GPU a 16th of its memory if that is more) and the device's largest
  /// allocation; over ranks no chunks. Errors: invalid_argument  a chunk's workspace exceeds the largest allocation
  int64_t chunk_tokens;
  /// moecl_layer_load: not 0 keeps the inputs of the experts' products plain, where the checkpoint says that they are
  /// quantized
  int32_t plain_activations;
  /// Not 0: few tokens take several launches too. In one launch the work-groups wait for each other: where somebody
  /// else keeps the device busy for seconds, the result is NaN and a fault.
  int32_t several_launches;
  /// NULL, or the name of a scheme (`moecl run --quantize`: "fp8_w8a8_block"): plain weights of the routed experts are
  /// quantized while they are loaded, and the rows of their products as the scheme has it
  const char* quantize;
  /// moecl_layer_load and _reload: NULL, or the path of a router spec, for a model of no known family
  const char* router_spec;
  /// How the rows of the routed experts' products are quantized; dtype 0: as the scheme or the checkpoint says
  moecl_operand_quant activations;
  moecl_operand_quant shared_activations;  ///< the same of the shared experts
  /// moecl_dtype of the router's weights, by which its product goes; 0: f32 where they are given so beside experts that
  /// are not, so that rounding chooses no other experts, else dtype
  int32_t router_dtype;
  int32_t panel_layout;  ///< moecl_panel_layout; others than AUTO need weights that can stand so, and kernels that read
                         ///< them
  /// Device memory for the routed experts here, one of both at most; 0: for all. The others stand in host memory that
  /// the device reads, and calls of the layer are made one at a time. Bytes are rounded down to whole experts
  uint64_t memory_budget_bytes;
  double memory_budget_percent;  ///< of the experts' bytes, rounded up to a whole expert
  int32_t residency;             ///< moecl_residency
  int32_t resident_loads_count;  ///< of MOECL_RESIDENCY_STATIC: experts of this rank; else 0
  const float* resident_loads;   ///< the same: a load of each, not negative
  int32_t missed_experts;        ///< moecl_missed_experts
  /// Of a layer of a checkpoint, or of its names: as moecl_layer_desc has it, which says it of other layers
  int32_t num_fused_shared_experts;
  /// moecl_switch. Where one rank has the layer, its shared experts run on a second queue, beside the routed ones. Such
  /// a pass takes several launches. Its stream waits for the second queue before the pass ends. By default on NVIDIA
  /// GPUs, up to 256 tokens, or 4096 where rows become codes
  int32_t shared_beside;
} moecl_layer_options;

/// Weights in host memory; `data` NULL: absent. Need not be aligned, and may be freed once the call returns.
typedef struct moecl_host_array {
  const void* data;
  int32_t dtype;  ///< moecl_dtype, never 0 where there is data
} moecl_host_array;

/// Where codes of a matrix stand: one or several to a unit, which is a little-endian number. Element (n, k) stands at
/// position i % unit_codes of unit i / unit_codes, from the lowest bits on, where i is k (n: packed_along_rows).
/// Zero: row after row, codes of 4 bits two to a byte, of 6 bits four to three bytes.
typedef struct moecl_code_layout {
  int32_t unit_bytes;  ///< 0: as said above
  int32_t unit_codes;  ///< 8 in 4 bytes: GPTQ's and AWQ's words of int4; 0: as said above
  int64_t row_stride;  ///< from a unit to the one of the next row (packed_along_rows: of the next unit's), in units; 0:
                       ///< no gap
  int64_t column_stride;      ///< from a unit to the next one in a row, in units; 0: 1
  int64_t first_row;          ///< elements that stand before the matrix in what is stored
  int64_t first_column;       ///< the same
  int32_t packed_along_rows;  ///< not 0: a unit's codes are neighbours in n, as GPTQ has them
  int32_t interleaved;        ///< not 0: element i % 8 stands at position [0, 4, 1, 5, 2, 6, 3, 7], as AWQ has them
} moecl_code_layout;

/// A matrix [rows, columns] of every expert, quantized: (code - zero point) * scale * global_scale.
typedef struct moecl_quantized_array {
  moecl_host_array codes;  ///< NULL: the matrix is plain, or absent. Shape: [E, rows, columns]
  moecl_host_array
      scales;  ///< f32, f16, bf16, MOECL_E8M0 or MOECL_F8_E4M3. Shape: [E, groups of rows, groups of columns]
  moecl_host_array zero_points;  ///< optional, of integer codes. Shape: as scales
  int64_t group_rows;            ///< rows (output channels) that share a scale; 0: one; -1: all
  int64_t group_columns;         ///< columns (of what is summed over) that share a scale; 0: all
  moecl_code_layout layout;
  moecl_code_layout zero_layout;
  uint64_t expert_bytes;       ///< from an expert's codes to the next one's; 0: no gap
  uint64_t zero_expert_bytes;  ///< the same of zero points
  int32_t zero_add;            ///< added to zero points. Source: GPTQ stores them less 1
  int32_t reserved;            ///< 0
  const int32_t* group_index;  ///< optional. Shape: [E, columns]: the group of each column (GPTQ's act-order)
  const float* global_scales;  ///< optional. Shape: [E], of gate_up [E, 2]; nvfp4's
  const float* input_scales;   ///< optional. Shape: [E]: static scales of the product's rows; gate's are up's
} moecl_quantized_array;

/// A layer from raw weights.
///
/// score_e  = score(logit_e), choice_e = score_e + selection_bias_e; the K largest choices win, equal ones by lowest
/// id. weight_k = score of the chosen, divided by their sum + renormalise_epsilon (renormalise), times scaling_factor.
typedef struct moecl_layer_desc {
  uint64_t size_bytes;
  int64_t hidden;               ///< H
  int64_t intermediate;         ///< I of one routed expert
  int64_t shared_intermediate;  ///< Is of the shared experts together; 0: none
  int32_t experts;              ///< E
  int32_t top_k;                ///< K. Range: [1, E]
  int32_t score;                ///< moecl_score
  int32_t score_order;          ///< moecl_score_order
  int32_t groups;               ///< experts form so many equal runs ...
  int32_t kept_groups;          ///< ... of which only the best so many take part. 0: all of them
  int32_t group_score;          ///< moecl_group_score
  int32_t renormalise;          ///< not 0: the weights of a token sum to 1
  float renormalise_epsilon;
  float scaling_factor;     ///< 0: 1
  int32_t weight_on_input;  ///< not 0: the weight multiplies an expert's input instead of its output; needs K = 1
  int32_t activation;       ///< moecl_activation
  float activation_alpha;   ///< swigluoai; 0: 1.702
  float activation_limit;   ///< swigluoai; 0: 7

  /// optional: without it passes bring logits or ids, or a table's weights are equal. Shape: [C, H]; C is E and the
  /// experts without products together
  moecl_host_array router;
  moecl_host_array selection_bias;  ///< optional. Shape: [C]
  moecl_host_array gate_up;         ///< Shape: [E, 2I, H], an expert's gate rows first; or `gate` and `up` instead
  moecl_host_array gate;            ///< Shape: [E, I, H]
  moecl_host_array up;              ///< Shape: [E, I, H]
  moecl_host_array down;            ///< Shape: [E, H, I]
  // Shared experts: all three exactly when shared_intermediate > 0.
  moecl_host_array shared_gate;         ///< Shape: [Is, H]
  moecl_host_array shared_up;           ///< Shape: [Is, H]
  moecl_host_array shared_down;         ///< Shape: [H, Is]
  moecl_host_array shared_expert_gate;  ///< optional. Shape: [H]; the shared part is multiplied by sigmoid(x . it)

  float renormalise_minimum;     ///< the least that renormalising divides by
  float mixer_jitter;            ///< of MOECL_SCORE_SPARSE_MIXER
  moecl_host_array router_bias;  ///< optional. Shape: [C]
  // Biases of the experts: all three, or gate_up_bias and down_bias, or none.
  moecl_host_array gate_up_bias;  ///< Shape: [E, 2I], as gate_up
  moecl_host_array gate_bias;     ///< Shape: [E, I]
  moecl_host_array up_bias;       ///< Shape: [E, I]
  moecl_host_array down_bias;     ///< Shape: [E, H]

  int32_t ungated;              ///< not 0: down(activation(up x)); there is no gate then
  int32_t gate_up_interleaved;  ///< not 0: rows of gate_up and of its bias alternate, a gate row first (gpt-oss)
  int32_t activation_no_bias;   ///< swigluoai: not 0 multiplies by u instead of u + 1
  int32_t reserved;             ///< 0
  // Biases of the shared experts.
  moecl_host_array shared_gate_bias;  ///< optional. Shape: [Is]
  moecl_host_array shared_up_bias;    ///< optional. Shape: [Is]
  moecl_host_array shared_down_bias;  ///< optional. Shape: [H]
  // Quantized matrices, each instead of the plain one of its name. Of gate_up, a group of rows is of gate or of up.
  moecl_quantized_array quantized_gate_up;
  moecl_quantized_array quantized_gate;
  moecl_quantized_array quantized_up;
  moecl_quantized_array quantized_down;
  moecl_quantized_array quantized_shared_gate;
  moecl_quantized_array quantized_shared_up;
  moecl_quantized_array quantized_shared_down;
  /// L of what the routed experts take and give, where that is another width than the router's; 0: H. Then gate_up,
  /// gate and up have L columns, down has L rows, and passes bring expert_input
  int64_t expert_hidden;
  // Experts without products. Their ids follow the E routed ones in this order.
  int32_t zero_experts;   ///< give 0
  int32_t copy_experts;   ///< give their input x
  int32_t const_experts;  ///< give alpha_1 * x + alpha_2 * v
  /// S > 0: the shared experts become S routed ones with ids E, E + 1, ..., so Is = S * I. Every token takes them: ids
  /// and weights have K + S columns, of which the last S say these with weight 1. Source: vLLM
  /// Errors: invalid_argument  there are no shared experts, they have a gate, or Is is not S * I
  int32_t num_fused_shared_experts;
  moecl_host_array const_alpha_1;  ///< of constant experts. Shape: [const_experts, L]
  moecl_host_array const_alpha_2;  ///< the same
  moecl_host_array const_v;        ///< the same
  int64_t vocabulary;              ///< V: a table says the experts of each of V token ids; 0: there is none
  moecl_host_array expert_table;   ///< of a vocabulary. Shape: [V, K] int32 or int64. Range: [0, C)
} moecl_layer_desc;

/// What a layer became.
typedef struct moecl_layer_info {
  uint64_t size_bytes;
  int64_t hidden;
  int64_t intermediate;
  int64_t shared_intermediate;
  int32_t experts;
  int32_t top_k;
  int32_t dtype;          ///< moecl_dtype that `x` must have
  int32_t expert_layout;  ///< moecl_expert_layout
  int64_t chunk_tokens;
  uint64_t weight_bytes;  ///< device memory held
  // Texts are cut to fit and always end with NUL.
  char expert_format[128];  ///< how their weights are stored: "i4, f16 scales of 128 columns, zero points"
  char shared_format[128];  ///< the same of shared experts; "" where there are none
  char activations[256];    ///< "plain", or what the products' rows are quantized to, and how products take it
  int64_t expert_hidden;    ///< L
  int64_t vocabulary;       ///< V; 0: no table
  int32_t zero_experts;
  int32_t copy_experts;
  int32_t const_experts;
  int32_t router_dtype;    ///< moecl_dtype of the router's weights; 0: there is no router
  char shared_queue[128];  ///< on which queue the shared experts run, and why; "" where there are none
  int64_t choices;         ///< C: columns of logits
} moecl_layer_info;

/// Loads a layer of a Hugging Face model directory: config.json beside safetensors. Stops the host.
///
/// @param layer    Decoder layer; -1: the first that has experts.
/// @param options  NULL for the defaults.
/// Errors: invalid_argument  no such layer, or it is dense; invalid_data, unsupported, io_error  the checkpoint;
///         out_of_memory
moecl_status moecl_layer_load(moecl_stream* stream, const char* model_dir, int32_t layer,
                              const moecl_layer_options* options, moecl_layer** out_layer);
/// Uploads and repacks raw weights. Stops the host.
/// Errors: invalid_argument  sizes or weights do not fit together; unsupported; out_of_memory
moecl_status moecl_layer_create(moecl_stream* stream, const moecl_layer_desc* desc, const moecl_layer_options* options,
                                moecl_layer** out_layer);
/// Replaces the weights by those of another checkpoint's layer, or by raw ones, of the same shape and formats. No more
/// memory is held; passes enqueued on `stream` before have the old weights. No pass may be under way on another stream.
/// Of `desc` only sizes and weights are read. Stops the host.
/// Errors: as the two above; invalid_argument  another shape or format; invalid_data  NaN or infinity where `quantize`
///         asks for codes: the layer keeps what it has. Where writing itself fails (device_error, out_of_memory,
///         io_error of a shard) every pass and every replacement of one expert is refused, until moecl_layer_reload or
///         moecl_layer_replace has succeeded
moecl_status moecl_layer_reload(moecl_layer* layer, moecl_stream* stream, const char* model_dir, int32_t decoder_layer);
/// From raw weights, as moecl_layer_reload from a checkpoint.
moecl_status moecl_layer_replace(moecl_layer* layer, moecl_stream* stream, const moecl_layer_desc* desc);
/// The same of one expert. @param desc  Of that expert alone, `experts` is 1; only its sizes and matrices are read.
/// Errors: invalid_argument  another shape or format, or `expert` is not in [0, E)
moecl_status moecl_layer_replace_expert(moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                        const moecl_layer_desc* desc);
/// NULL is no error. The layer's commands must have completed.
moecl_status moecl_layer_destroy(moecl_layer* layer);
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_layer_describe(const moecl_layer* layer, moecl_layer_info* out_info);
/// @param out_counts  Filled as far as its size_bytes reaches. Stops the host.
moecl_status moecl_layer_residency(const moecl_layer* layer, moecl_stream* stream, moecl_residency_counts* out_counts);
/// Device memory that moecl_layer_forward needs as workspace for up to `tokens` tokens.
moecl_status moecl_layer_workspace_bytes(const moecl_layer* layer, int64_t tokens, uint64_t* out_workspace_bytes);

/// Compiles now what passes of 1 to 16 tokens, of each power of two up to `max_tokens` and of `max_tokens` need, with
/// the operands that every pass has: x to out. Passes with a choice, ids of 64 bits or outputs beside it may compile at
/// first use. Enqueues nothing, stops the host. Errors: build_failed; invalid_argument  max_tokens is negative
moecl_status moecl_layer_compile(const moecl_layer* layer, moecl_stream* stream, int64_t max_tokens);

/// A tensor in the caller's cl_mem, from a byte offset on that is a multiple of its element's size; `memory` NULL:
/// absent.
typedef struct moecl_device_array {
  struct _cl_mem* memory;
  uint64_t offset_bytes;
} moecl_device_array;

/// What is written (outputs, fault, workspace) must not overlap anything else here, by whatever sub-buffers; inputs may
/// overlap inputs, and of a layer over ranks `out` may be x itself. With no tokens every `memory` may be NULL.
///
/// Routing, one of:
/// - neither logits nor ids: the layer's router gives logits, and the layer's rule chooses
/// - given_logits: the layer's rule chooses by them
/// - ids and weights: the caller's choice, without token_ids and finished
/// A layer with a table of experts (vocabulary > 0) also takes token_ids, unless ids are given: the table chooses,
/// logits weigh. At least one of out, routed_out, shared_out and expert_rows is asked for. L is H and C is E unless the
/// layer has others.
typedef struct moecl_forward_args {
  uint64_t size_bytes;
  int64_t tokens;  ///< T
  /// Shape: [T, H] of the layer's dtype. NULL where only expert_input is needed: the routing is given, and shared
  /// experts are not asked for
  moecl_device_array x;
  /// optional out. Shape: [T, L] of out_dtype: the routed and the shared part together, where both have L columns
  moecl_device_array out;
  int32_t out_dtype;                 ///< moecl_dtype of out, routed_out and shared_out; 0: the layer's
  moecl_device_array ids;            ///< optional. Shape: [T, K] of ids_dtype; -1: no expert. The caller's choice, ...
  moecl_device_array weights;        ///< ... with ids. Shape: [T, K] f32
  moecl_device_array router_logits;  ///< optional out. Shape: [T, C] f32; not with given_logits
  moecl_device_array topk_ids;       ///< optional out. Shape: [T, K] of ids_dtype; not with the caller's own ids
  moecl_device_array topk_weights;   ///< optional out. Shape: [T, K] f32; not with the caller's own ids
  moecl_device_array routed_out;     ///< optional out. Shape: [T, L] of out_dtype, `out` without the shared experts
  /// offset a multiple of 256; this pass's alone until the command completes. Over ranks optional: NULL takes memory
  /// that all layers of the ranks share
  moecl_device_array workspace;
  /// at least what moecl_layer_workspace_bytes says, over ranks moecl_parallel_layer_workspace_bytes; 0: up to the end
  /// of the cl_mem
  uint64_t workspace_bytes;
  moecl_device_array fault;         ///< optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after
  moecl_device_array finished;      ///< optional, not with ids. Shape: [T] bytes; tokens with another than 0 take none
  int32_t ids_dtype;                ///< MOECL_I32 or MOECL_I64, of ids, topk_ids and expert_num_tokens; 0: int32
  int32_t logits_dtype;             ///< moecl_dtype of given_logits; 0: f32
  moecl_device_array given_logits;  ///< optional: of a router of the caller's. Shape: [T, C] of logits_dtype
  /// optional unless L differs from H: what the routed experts take; the router and the shared experts take x. Shape:
  /// [T, L] of expert_input_dtype
  moecl_device_array expert_input;
  moecl_device_array shared_out;  ///< optional out. Shape: [T, H] of out_dtype: the shared experts' part alone
  /// optional out: rows that each expert here was given, by any rank. Shape: [places of this rank] of ids_dtype
  moecl_device_array expert_num_tokens;
  int32_t expert_input_dtype;  ///< moecl_dtype; 0: that of x. Codes, MOECL_I8 or MOECL_F8_E4M3, need scales
  int32_t token_ids_dtype;     ///< MOECL_I32 or MOECL_I64; 0: int32
  /// of codes, as the layer's activations have them, which are not quantized again. Shape: [T] f32, a scale a token; or
  /// [T, ceil(L / expert_input_group)] f32, of MX bytes (e8m0)
  moecl_device_array expert_input_scale;
  int64_t expert_input_group;    ///< columns that share a scale; 0: all of a token
  moecl_device_array token_ids;  ///< of layers with a table, where ids are not given. Shape: [T] of token_ids_dtype
  /// optional out, for a caller who sums himself: row t * K + k is what expert k of token t gave, without its weight; 0
  /// where there is none. Shape: [T * K, L] of out_dtype. Over ranks with all-to-all, and with MC2 of f32, without tp
  /// groups
  moecl_device_array expert_rows;
  /// optional in/out: rows that each expert here was given, added to what it holds: a record of loads over passes,
  /// which nobody waits for. Zero it before; one for prefill and one for decode tell them apart. Shape: [places of this
  /// rank] int64
  moecl_device_array expert_load;
} moecl_forward_args;

/// out = MoE(x).
///
/// Async: enqueues kernels and returns; never waits for the device. A kernel that no earlier pass used is first
/// compiled,
///        or read from the disk cache.
/// Empty: T = 0 runs no kernel, but waits and gives an event as always.
/// @param num_wait_events  0 exactly when wait_events is NULL.
/// @param wait_events      Must complete before the first kernel starts, beside the stream's own order.
/// @param out_event        NULL, or receives an event that completes when the pass has; the caller releases it. A pass
///                         does not flush: call clFlush on the stream's queue before another queue waits for the event
///                         or the host polls it.
/// Errors: invalid_argument  before anything is enqueued; build_failed, device_error
moecl_status moecl_layer_forward(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                 uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                 struct _cl_event** out_event);
/// Brings experts that a pass to come may need to device memory, where they take turns in a memory budget: those that
/// these tokens would choose here. So hidden states of the layer before bring them while that one computes; `stream` is
/// another than that of the passes, which take turns with prefetches by themselves. Results keep their bits.
///
/// Nothing is brought without a budget, for more tokens than fit it with all their experts, nor beyond chunk_tokens.
/// @param args  tokens, what says the routing (x, ids or given_logits and theirs), and a workspace of this call's own;
///              outputs and expert_input are not looked at
/// Async, Empty, events, Errors: as moecl_layer_forward. Threads: with moecl_layer_forward of this layer, one at a time
moecl_status moecl_layer_prefetch(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                  uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                  struct _cl_event** out_event);
/// Reads a fault word that earlier commands of the stream were given. Stops the host. The word stays: zero it before it
/// is used again. Errors: invalid_argument  it holds a fault; the message has its kind, an index and a value. Kinds:
/// FaultCode of
///         <moecl/fault.hpp>, such as an id outside [-1, C), an expert without room, a work-group that came too late.
///         Slots count within a chunk of the pass (moecl_layer_info.chunk_tokens), over ranks within what a rank sorts
moecl_status moecl_check_fault(moecl_stream* stream, moecl_device_array fault);

#ifdef __cplusplus
}
#endif
#endif
