#ifndef MOECL_H
#define MOECL_H
/// @file
/// moecl's C interface: one MoE layer on one OpenCL device. C99 and C++. Operators are in npu_FAMILY.h, groups of
/// ranks in rank_group.h, layers over ranks in parallel_layer.h.
///
/// Status: Every function returns MOECL_OK or the kind of the error; moecl_last_error_message() describes the error in
/// words, with the numbers. Results are written to `out_` parameters, which stay untouched on failure. Arguments are
/// checked before anything is enqueued. No exception leaves this interface. The library never prints and never aborts.
/// Structs: Set every struct to zero, then `size_bytes` to its sizeof. Zero is each field's default, so a program built
/// with an older header runs on a newer library. A program built with a newer header runs on an older library unless it
/// sets a field that the library does not know, which is an error.
/// Handles: Destroy each handle once, in any order: a stream and a layer keep what they need of their context. Wrapping
/// retains the caller's cl_context or cl_command_queue; destroying the handle releases it. A cl_mem is only used: as
/// OpenCL has it, the caller may release a cl_mem once its commands are enqueued.
/// Host: "Stops the host" means that the call blocks until the device has finished the work concerned.
/// Threads: Several threads may use a context. One thread at a time uses a stream. Several threads may run passes of
/// one layer at once, each with its own stream and workspace. With a memory budget, calls of one layer, prefetches
/// included, are made one at a time, on any streams of the device. While weights are replaced, no other call of the
/// layer is made.
/// Processes: fork() does not copy a driver's threads. Once a process has used OpenCL here, every function of this
/// interface fails in its forked children with MOECL_UNSUPPORTED, and destroys nothing. Fork before the first call,
/// start programs by posix_spawn, or fork and exec.
/// Sizes: T tokens, E experts, K experts per token, H hidden size, I intermediate size. Tensors are row-major and
/// contiguous. Units are elements unless a name ends in `_bytes`.
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

/// The kind of an error.
typedef enum moecl_status {
  MOECL_OK = 0,
  MOECL_INVALID_ARGUMENT = 1,   ///< a shape, dtype, option or id the caller passed is wrong
  MOECL_UNSUPPORTED = 2,        ///< the request is meaningful, but this library or device cannot do it
  MOECL_INVALID_DATA = 3,       ///< a file or its contents are malformed or contradict each other
  MOECL_IO_ERROR = 4,           ///< the operating system refused a file operation
  MOECL_NO_DEVICE = 5,          ///< no usable OpenCL platform or device
  MOECL_OUT_OF_MEMORY = 6,      ///< the host or a device could not allocate
  MOECL_BUILD_FAILED = 7,       ///< an OpenCL program did not compile
  MOECL_DEVICE_ERROR = 8,       ///< an OpenCL call failed; the message has its code
  MOECL_DEADLINE_EXCEEDED = 9,  ///< a wait ran out of time
  MOECL_INTERNAL_ERROR = 10     ///< a failure moecl did not foresee: a bug of moecl
} moecl_status;

/// Version of these headers; moecl_version returns that of the library.
#define MOECL_VERSION_MAJOR 0
#define MOECL_VERSION_MINOR 1  ///< see MOECL_VERSION_MAJOR
#define MOECL_VERSION_PATCH 0  ///< see MOECL_VERSION_MAJOR

/// The version of the library that runs: "0.1.0".
const char* moecl_version(void);
/// The commit that the library was built from: 12 digits, with "+" if files differed from that commit; "unknown"
/// outside git.
const char* moecl_commit(void);
/// The name of a status: "invalid_argument"; "unknown" for a number that is no status.
const char* moecl_status_name(moecl_status status);
/// The error of this thread's last failed call, cut at 4095 bytes; "" if no call has failed.
/// Lifetime: until the thread's next call that fails.
const char* moecl_last_error_message(void);

// ---------------------------------------------------------------------------------------------------------- devices

/// Properties of a device.
typedef struct moecl_device_info {
  uint64_t size_bytes;
  struct _cl_platform_id* platform;
  struct _cl_device_id* device;  ///< NULL for a platform without devices
  uint64_t global_mem_bytes;
  uint64_t max_alloc_bytes;
  uint64_t compute_units;
  // Texts are cut to fit and always end with NUL.
  char platform_name[128];
  char name[128];
  char driver_version[128];
  char refused[256];  ///< why moecl cannot use the device; "" if it can
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

/// The severity of a log line.
typedef enum moecl_log_level {
  MOECL_LOG_DEBUG = 1,
  MOECL_LOG_INFO = 2,
  MOECL_LOG_WARNING = 3,
  MOECL_LOG_ERROR = 4,
  MOECL_LOG_OFF = 5  ///< only as a threshold
} moecl_log_level;

/// On, off, or the default, which some options take from the environment.
typedef enum moecl_switch { MOECL_DEFAULT = 0, MOECL_ON = 1, MOECL_OFF = 2 } moecl_switch;

/// Receives one log line; `message` is valid only during the call. The callback must return, and not by an exception or
/// longjmp.
/// Threads: called on any thread that calls moecl.
typedef void (*moecl_log_callback)(void* user, moecl_log_level level, const char* message);

/// The process in which a driver compiles programs that it has not compiled before.
typedef enum moecl_compile {
  MOECL_COMPILE_HELPER = 1,     ///< a helper process; if that process dies, the call fails with build_failed
  MOECL_COMPILE_IN_PROCESS = 2  ///< this process: a compiler that crashes ends it
} moecl_compile;

/// A field left at zero takes the value of the environment variable named here, else the default named here.
typedef struct moecl_context_options {
  uint64_t size_bytes;
  moecl_log_callback log;    ///< NULL: log lines are dropped
  void* log_user;            ///< passed to `log`; must live as long as the context and everything made from it
  const char* cache_dir;     ///< of compiled programs. MOECL_CACHE_DIR, else $XDG_CACHE_HOME/moecl/cl
  uint64_t cache_max_bytes;  ///< of the disk cache. 256 MiB
  int32_t log_level;         ///< moecl_log_level: the lowest that reaches `log`. MOECL_LOG, else warning
  int32_t disk_cache;        ///< moecl_switch: keep compiled programs on disk. MOECL_CACHE, else on
  /// moecl_switch: record kernels and transfers. Streams that moecl creates then have profiling queues. Off
  int32_t trace;
  int32_t compile;               ///< moecl_compile. MOECL_COMPILE, else helper
  uint64_t compile_deadline_ms;  ///< longest wait for a helper to compile a program. MOECL_COMPILE_DEADLINE, else 300 s
} moecl_context_options;

/// A context of one device. `device_index` is that of moecl_device_describe.
/// @param options  NULL for the defaults.
/// Errors: invalid_argument  no device has this index; no_device  the device is refused, the message says why
moecl_status moecl_context_create(int32_t device_index, const moecl_context_options* options,
                                  moecl_context** out_context);
/// A context of the first usable device whose platform and device names contain the given texts, ignoring case. NULL
/// and "" match all.
/// Errors: no_device  no device matches; the message lists the devices that were found
moecl_status moecl_context_create_matching(const char* platform_contains, const char* device_contains,
                                           const moecl_context_options* options, moecl_context** out_context);
/// Wraps the caller's cl_context and retains it.
moecl_status moecl_context_wrap(struct _cl_context* cl_context, const moecl_context_options* options,
                                moecl_context** out_context);
/// NULL is no error. Saves the programs as moecl_context_save_programs does, once the streams and layers made from the
/// context are destroyed too.
moecl_status moecl_context_destroy(moecl_context* context);
/// Writes the programs compiled so far to the disk cache. A failed write gives only a log line. Programs that seldom
/// destroy their context call this function once, after the first results. Threads: any
///
/// Cost: PoCL creates a program's binary on request: about 0.1 s per kernel, once for each.
moecl_status moecl_context_save_programs(moecl_context* context);
/// The cl_context, to make cl_mem objects with. Lifetime: the context's; retain it to keep it longer.
moecl_status moecl_context_native(const moecl_context* context, struct _cl_context** out_cl_context);

/// Counters of a context.
typedef struct moecl_context_info {
  uint64_t size_bytes;
  // Counts so far, over everything that was made from the context.
  uint64_t host_syncs;          ///< calls that stopped the host: finish, blocking reads and writes
  uint64_t programs_built;      ///< compiled from source
  uint64_t programs_from_disk;  ///< read from the disk cache
  uint64_t kernels_launched;
} moecl_context_info;
/// @param out_info  Filled as far as its size_bytes reaches. Threads: any
moecl_status moecl_context_describe(const moecl_context* context, moecl_context_info* out_info);

/// Writes the commands recorded so far as Chrome JSON, for ui.perfetto.dev. Stops the host until those commands are
/// complete. If host memory runs out meanwhile, the process ends.
/// Errors: invalid_argument  the context was made without `trace`; io_error
moecl_status moecl_trace_write(moecl_context* context, const char* path);

/// @param device_index  Index among the devices of the context; 0 for a context that moecl made.
moecl_status moecl_stream_create(moecl_context* context, int32_t device_index, moecl_stream** out_stream);
/// Wraps the caller's queue and retains it.
/// Errors: invalid_argument  the queue is out-of-order, or of another cl_context
moecl_status moecl_stream_wrap(moecl_context* context, struct _cl_command_queue* cl_queue, moecl_stream** out_stream);
/// NULL is no error.
moecl_status moecl_stream_destroy(moecl_stream* stream);
/// The cl_command_queue. Lifetime: the stream's; retain it to keep it longer.
moecl_status moecl_stream_native(const moecl_stream* stream, struct _cl_command_queue** out_cl_queue);
/// Stops the host until everything enqueued on the stream so far has completed.
/// Errors: device_error  a command failed
moecl_status moecl_stream_finish(moecl_stream* stream);
/// Enqueues a marker. Later commands of the stream wait for `wait_events`; `out_event` completes when all earlier
/// commands have completed. This gives a wait list and an event to any call that works on a stream, collectives and
/// passes over ranks included.
/// Async: enqueues at most one command; the caller need not flush it.
/// @param num_wait_events  0 exactly when wait_events is NULL
/// @param out_event        NULL, or receives an event that the caller releases
moecl_status moecl_stream_mark(moecl_stream* stream, uint32_t num_wait_events, struct _cl_event* const* wait_events,
                               struct _cl_event** out_event);

// ----------------------------------------------------------------------------------------------------------- layers

/// One MoE layer with its weights on one device.
typedef struct moecl_layer moecl_layer;

/// Element types. Layers take f32, f16 and bf16; quantized weights take all but MOECL_BOOL, MOECL_I32 and MOECL_I64;
/// operators (npu.h) take those up to MOECL_I64.
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
  MOECL_E8M0 = 11,  ///< for scales: powers of two, one byte each. Source: OCP Microscaling Formats 1.0
  MOECL_I4 = 12,    ///< two's complement
  MOECL_U4 = 13,    ///< relative to a zero point, by default 8 (MOECL_U8: 128)
  MOECL_F4_E2M1 = 14,
  MOECL_F6_E2M3 = 15,
  MOECL_F6_E3M2 = 16
} moecl_dtype;

/// When scores are computed: over all experts before the top-k choice, or over the chosen logits after the choice.
typedef enum moecl_score_order { MOECL_SCORE_BEFORE_TOP_K = 0, MOECL_SCORE_AFTER_TOP_K = 1 } moecl_score_order;
/// How a logit becomes a score.
typedef enum moecl_score {
  MOECL_SCORE_SOFTMAX = 0,
  MOECL_SCORE_SIGMOID = 1,
  MOECL_SCORE_NONE = 2,
  MOECL_SCORE_SQRTSOFTPLUS = 3,  ///< sqrt(log(1 + exp(x)))
  MOECL_SCORE_SPARSE_MIXER = 4   ///< as in Phi-3.5-MoE; needs MOECL_SCORE_AFTER_TOP_K
} moecl_score;
/// The score of a group of experts: the max, or the sum of the two largest, of its choice_e (moecl_layer_desc).
typedef enum moecl_group_score { MOECL_GROUP_MAX = 0, MOECL_GROUP_SUM_OF_TOP_2 = 1 } moecl_group_score;

/// How an expert combines its gate product g and its up product u.
typedef enum moecl_activation {
  MOECL_SILU = 0,       ///< silu(g) * u
  MOECL_GELU = 1,       ///< 0.5 g (1 + erf(g / sqrt 2)) * u
  MOECL_GELU_TANH = 2,  ///< the tanh approximation of gelu(g) * u
  MOECL_SWIGLUOAI = 3,  ///< g = min(g, limit), u = clamp(u, -limit, limit): (u + 1) * g * sigmoid(alpha * g)
  MOECL_RELU2 = 4,      ///< max(g, 0)^2 * u
  MOECL_RELU = 5,       ///< max(g, 0) * u
  MOECL_FAST_GELU = 6   ///< g * sigmoid(1.702 g) * u
} moecl_activation;

/// The layout in memory of the experts' rows between the products.
typedef enum moecl_expert_layout {
  MOECL_LAYOUT_STANDARD = 0,  ///< concatenated in expert order
  MOECL_LAYOUT_BATCHED = 1    ///< every expert has room for the same number of rows
} moecl_expert_layout;

/// The layout of the panels of experts' weights on a device (`moecl run --layout`).
typedef enum moecl_panel_layout {
  MOECL_PANELS_AUTO = 0,     ///< the fastest on that device
  MOECL_PANELS_N_MAJOR = 1,  ///< the columns of one k are adjacent; every kernel reads this layout
  MOECL_PANELS_K_MAJOR = 2,  ///< 128 k of a column are adjacent; 8-bit codes, for tensor cores
  MOECL_PANELS_K_WORDS = 3   ///< 32 bits of a column are adjacent; elements of 4, 8 or 16 bits, for dot products of
                             ///< CPUs
} moecl_panel_layout;

/// How a scale that is computed from a group's numbers is rounded to a power of two. amax: their largest magnitude.
typedef enum moecl_scale_rounding {
  MOECL_ROUND_STANDARD = 0,     ///< e8m0: amax, rounded down. Real scales: not rounded
  MOECL_ROUND_RATIO_UP = 1,     ///< amax / the format's largest number, rounded up (DeepGEMM, ModelOpt)
  MOECL_ROUND_AMAX_UP = 2,      ///< amax, rounded up (Quark, ceil)
  MOECL_ROUND_AMAX_EVEN = 3,    ///< amax, rounded up from 1.75 times a power of two on (compressed-tensors)
  MOECL_ROUND_AMAX_NEAREST = 4  ///< amax, rounded up where rounding the mantissa leads there (Quark, even)
} moecl_scale_rounding;

/// How an operand of a product is quantized: its input rows, just before the product, or stored weights.
typedef struct moecl_operand_quant {
  int32_t dtype;          ///< moecl_dtype of the codes; 0: the operand stays plain (unquantized)
  int32_t scale_dtype;    ///< MOECL_F32, MOECL_E8M0, or MOECL_F8_E4M3 (times one number for all rows); 0: MOECL_F32
  int64_t group_rows;     ///< rows that share a scale; 0: one; -1: all
  int64_t group_columns;  ///< columns of a row that share a scale; 0: all
  int32_t zero_points;    ///< not 0: integer codes have a zero point per group
  int32_t static_scale;   ///< not 0: the scale is given with the weights; 0: it is computed from the rows
  int32_t rounding;       ///< moecl_scale_rounding
  float max_amax;         ///< real scales: upper limit of the largest magnitude; 0: no limit
  float min_scale;        ///< real scales: lower limit of the scale
  int32_t reserved;       ///< 0
} moecl_operand_quant;

/// Which expert is evicted from device memory under a memory budget: the one that ...
typedef enum moecl_residency {
  MOECL_RESIDENCY_LEAST_STALE = 0,  ///< was used least; each pass decays past uses to nine tenths
  MOECL_RESIDENCY_LRU = 1,          ///< was used longest ago
  MOECL_RESIDENCY_STATIC = 2        ///< has the smallest of the given loads (resident_loads)
} moecl_residency;

/// How an expert is served that is needed but not in device memory.
typedef enum moecl_missed_experts {
  MOECL_MISSED_AUTO = 0,     ///< in place on CPUs, whose memory is the host's; else fetched
  MOECL_MISSED_FETCHED = 1,  ///< it takes the device memory of another expert
  MOECL_MISSED_IN_PLACE = 2  ///< products read it in host memory. All experts are then there, and residency only
                             ///< affects counts
} moecl_missed_experts;

/// Statistics of the memory budget since a layer was loaded.
typedef struct moecl_residency_counts {
  uint64_t size_bytes;
  int64_t resident;         ///< experts that fit device memory at once
  uint64_t budget_bytes;    ///< device memory of these experts
  int64_t hits;             ///< experts with rows that were in device memory, summed over passes
  int64_t misses;           ///< experts with rows that were not, summed over passes
  uint64_t fetched_bytes;   ///< bytes of missed experts that came from host memory, copied or read in place, and of
                            ///< prefetched experts
  int64_t prefetched;       ///< experts that moecl_layer_prefetch brought
  int64_t prefetched_hits;  ///< hits of prefetched experts, each counted once
} moecl_residency_counts;

/// How a layer is stored and run.
typedef struct moecl_layer_options {
  uint64_t size_bytes;
  /// moecl_dtype of activations and plain weights on the device. 0: that of the first expert's weights. If these are
  /// quantized: that of the router; if the router is f32: that of config.json, else that of 16-bit scales
  int32_t dtype;
  int32_t expert_layout;    ///< moecl_expert_layout
  int64_t rows_per_expert;  ///< batched layout: rows each expert has room for; 0: enough for any routing
  /// Most tokens that run at once; longer inputs run in chunks, one after the other. 0: the largest power of two in
  /// [64, 65536] whose workspace fits 256 MiB (on a GPU a 16th of its memory if that is more) and the device's largest
  /// allocation; over ranks no chunks. Errors: invalid_argument  a chunk's workspace exceeds the largest allocation
  int64_t chunk_tokens;
  /// moecl_layer_load: not 0 keeps the inputs of the experts' products plain even if the checkpoint says that they are
  /// quantized
  int32_t plain_activations;
  /// Not 0: passes of few tokens take several launches too, and so does the routing of more than 64 tokens. In a single
  /// launch, work-groups wait for each other: if other work keeps the device busy for seconds, the result is NaN and a
  /// fault.
  int32_t several_launches;
  /// NULL, or the name of a scheme (`moecl run --quantize`: "fp8_w8a8_block"). Plain weights of the routed experts are
  /// quantized while they are loaded, and the input rows of their products as the scheme says
  const char* quantize;
  /// moecl_layer_load and _reload: NULL, or the path of a router spec, for a model of no known family
  const char* router_spec;
  /// How the input rows of the routed experts' products are quantized; dtype 0: as the scheme or the checkpoint says
  moecl_operand_quant activations;
  moecl_operand_quant shared_activations;  ///< the same for the shared experts
  /// moecl_dtype of the router's weights, and so of its product. 0: f32 if the weights are given in f32 and the experts
  /// are not, so that rounding does not change the choice of experts; else dtype
  int32_t router_dtype;
  int32_t panel_layout;  ///< moecl_panel_layout; any but AUTO needs weights that can have that layout, and kernels that
                         ///< read it
  /// Device memory for the routed experts of this device, as bytes or as percent, not both; 0: for all experts. The
  /// other experts stay in host memory that the device reads, and calls of the layer are made one at a time. Bytes are
  /// rounded down to whole experts
  uint64_t memory_budget_bytes;
  double memory_budget_percent;  ///< of the experts' bytes, rounded up to a whole expert
  int32_t residency;             ///< moecl_residency
  int32_t resident_loads_count;  ///< MOECL_RESIDENCY_STATIC: number of experts of this rank; else 0
  const float* resident_loads;   ///< MOECL_RESIDENCY_STATIC: the load of each expert, not negative
  int32_t missed_experts;        ///< moecl_missed_experts
  /// As in moecl_layer_desc, for layers loaded from a checkpoint or built by its names. 0 if a moecl_layer_desc is
  /// given
  int32_t num_fused_shared_experts;
  /// moecl_switch. A layer of one rank runs its shared experts on a second queue, concurrently with the routed ones.
  /// Such a pass takes several launches. Its stream waits for the second queue before the pass ends. Default: on for
  /// NVIDIA GPUs, up to 256 tokens, or up to 4096 if rows are quantized
  int32_t shared_beside;
} moecl_layer_options;

/// Weights in host memory; `data` NULL: absent. Need not be aligned, and may be freed once the call returns.
typedef struct moecl_host_array {
  const void* data;
  int32_t dtype;  ///< moecl_dtype; not 0 if there is data
} moecl_host_array;

/// How the codes of a matrix [N, K] are packed. A unit is a little-endian number that holds one or several codes.
/// Element (n, k) is at position i % unit_codes of unit i / unit_codes, counted from the lowest bits, where i is k
/// (packed_along_rows: n). All zero: rows are contiguous, with two 4-bit codes per byte, and four 6-bit codes per three
/// bytes.
typedef struct moecl_code_layout {
  int32_t unit_bytes;     ///< 0: as with all zero
  int32_t unit_codes;     ///< 8 in 4 bytes: GPTQ's and AWQ's words of int4; 0: as with all zero
  int64_t row_stride;     ///< units from one row to the next (packed_along_rows: to the next row of units); 0: no gap
  int64_t column_stride;  ///< units from one unit of a row to the next; 0: 1
  int64_t first_row;      ///< rows (n) stored before the matrix, in elements
  int64_t first_column;   ///< columns (k) stored before the matrix, in elements
  int32_t packed_along_rows;  ///< not 0: a unit's codes are neighbours in n, as in GPTQ
  int32_t interleaved;        ///< not 0: element i % 8 is at position [0, 4, 1, 5, 2, 6, 3, 7], as in AWQ
} moecl_code_layout;

/// A quantized matrix [rows, columns] of every expert. An element is (code - zero point) * scale * global_scale.
typedef struct moecl_quantized_array {
  moecl_host_array codes;  ///< NULL: the matrix is plain, or absent. Shape: [E, rows, columns]
  moecl_host_array
      scales;  ///< f32, f16, bf16, MOECL_E8M0 or MOECL_F8_E4M3. Shape: [E, groups of rows, groups of columns]
  moecl_host_array zero_points;  ///< optional, for integer codes. Shape: as scales
  int64_t group_rows;            ///< rows (output channels) that share a scale; 0: one; -1: all
  int64_t group_columns;         ///< columns (the summed dimension) that share a scale; 0: all
  moecl_code_layout layout;
  moecl_code_layout zero_layout;
  uint64_t expert_bytes;       ///< bytes from an expert's codes to the next expert's; 0: no gap
  uint64_t zero_expert_bytes;  ///< the same for zero points
  int32_t zero_add;            ///< added to stored zero points. Source: GPTQ stores zero - 1
  int32_t reserved;            ///< 0
  const int32_t* group_index;  ///< optional: the group of each column (GPTQ's act-order). Shape: [E, columns]
  const float* global_scales;  ///< optional, as in nvfp4. Shape: [E]; for gate_up [E, 2]
  const float* input_scales;   ///< optional: static scales of the product's input rows; gate uses up's. Shape: [E]
} moecl_quantized_array;

/// A layer from raw weights.
///
/// score_e = score(logit_e), choice_e = score_e + selection_bias_e. The K experts with the largest choices win; ties go
/// to the lowest id. weight_k is the score of the k-th chosen expert, divided by the sum of the chosen scores +
/// renormalise_epsilon (if renormalise is set), times scaling_factor.
typedef struct moecl_layer_desc {
  uint64_t size_bytes;
  int64_t hidden;               ///< H
  int64_t intermediate;         ///< I of one routed expert
  int64_t shared_intermediate;  ///< Is of the shared experts together; 0: none
  int32_t experts;              ///< E
  int32_t top_k;                ///< K. Range: [1, E]
  int32_t score;                ///< moecl_score
  int32_t score_order;          ///< moecl_score_order
  int32_t groups;               ///< number of groups: consecutive experts, equally many each
  int32_t kept_groups;          ///< how many of the best groups take part; 0: all
  int32_t group_score;          ///< moecl_group_score
  int32_t renormalise;          ///< not 0: the weights of a token sum to 1
  float renormalise_epsilon;
  float scaling_factor;     ///< 0: 1
  int32_t weight_on_input;  ///< not 0: the weight multiplies an expert's input instead of its output; needs K = 1
  int32_t activation;       ///< moecl_activation
  float activation_alpha;   ///< swigluoai; 0: 1.702
  float activation_limit;   ///< swigluoai; 0: 7

  /// optional: without a router, passes bring logits or ids, or the weights of a table's experts are equal. C counts
  /// the E experts and the experts without products. Shape: [C, H]
  moecl_host_array router;
  moecl_host_array selection_bias;  ///< optional. Shape: [C]
  moecl_host_array gate_up;         ///< gate rows of an expert first; or give `gate` and `up`. Shape: [E, 2I, H]
  moecl_host_array gate;            ///< Shape: [E, I, H]
  moecl_host_array up;              ///< Shape: [E, I, H]
  moecl_host_array down;            ///< Shape: [E, H, I]
  // Shared experts: all three exactly when shared_intermediate > 0.
  moecl_host_array shared_gate;         ///< Shape: [Is, H]
  moecl_host_array shared_up;           ///< Shape: [Is, H]
  moecl_host_array shared_down;         ///< Shape: [H, Is]
  moecl_host_array shared_expert_gate;  ///< optional; multiplies the shared part by sigmoid(x . gate). Shape: [H]

  float renormalise_minimum;     ///< lower limit of the sum that renormalising divides by
  float mixer_jitter;            ///< for MOECL_SCORE_SPARSE_MIXER
  moecl_host_array router_bias;  ///< optional. Shape: [C]
  // Biases of the experts: all three, or gate_up_bias and down_bias, or none.
  moecl_host_array gate_up_bias;  ///< Shape: [E, 2I], as gate_up
  moecl_host_array gate_bias;     ///< Shape: [E, I]
  moecl_host_array up_bias;       ///< Shape: [E, I]
  moecl_host_array down_bias;     ///< Shape: [E, H]

  int32_t ungated;              ///< not 0: an expert is down(activation(up x)), without a gate
  int32_t gate_up_interleaved;  ///< not 0: rows of gate_up and of its bias alternate, a gate row first (gpt-oss)
  int32_t activation_no_bias;   ///< swigluoai: not 0 multiplies by u instead of u + 1
  int32_t reserved;             ///< 0
  // Biases of the shared experts.
  moecl_host_array shared_gate_bias;  ///< optional. Shape: [Is]
  moecl_host_array shared_up_bias;    ///< optional. Shape: [Is]
  moecl_host_array shared_down_bias;  ///< optional. Shape: [H]
  // Quantized matrices; each replaces the plain one of its name. In gate_up, a group of rows is of gate or of up.
  moecl_quantized_array quantized_gate_up;
  moecl_quantized_array quantized_gate;
  moecl_quantized_array quantized_up;
  moecl_quantized_array quantized_down;
  moecl_quantized_array quantized_shared_gate;
  moecl_quantized_array quantized_shared_up;
  moecl_quantized_array quantized_shared_down;
  /// L: width of the routed experts' input and output if it differs from the router's; 0: H. Then gate_up, gate and up
  /// have L columns, down has L rows, and passes bring expert_input
  int64_t expert_hidden;
  // Experts without products. Their ids follow those of the E routed experts, in this order.
  int32_t zero_experts;   ///< output 0
  int32_t copy_experts;   ///< output their input x
  int32_t const_experts;  ///< output alpha_1 * x + alpha_2 * v
  /// S > 0: the shared experts become S routed experts with ids E, E + 1, ..., so Is = S * I. Every token takes them:
  /// ids and weights have K + S columns; the last S columns name these experts, with weight 1. Source: vLLM
  /// Errors: invalid_argument  there are no shared experts, they have a gate, or Is is not S * I
  int32_t num_fused_shared_experts;
  moecl_host_array const_alpha_1;  ///< for constant experts. Shape: [const_experts, L]
  moecl_host_array const_alpha_2;  ///< the same
  moecl_host_array const_v;        ///< the same
  int64_t vocabulary;              ///< V: a table gives the experts of each of V token ids; 0: no table
  moecl_host_array expert_table;   ///< if vocabulary > 0. Shape: [V, K] int32 or int64. Range: [0, C)
} moecl_layer_desc;

/// What was chosen for a layer.
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
  char expert_format[128];  ///< how the experts' weights are stored: "i4, f16 scales of 128 columns, zero points"
  char shared_format[128];  ///< the same for the shared experts; "" if there are none
  char activations[256];    ///< "plain", or the format of the products' quantized rows, and how products read it
  int64_t expert_hidden;    ///< L
  int64_t vocabulary;       ///< V; 0: no table
  int32_t zero_experts;
  int32_t copy_experts;
  int32_t const_experts;
  int32_t router_dtype;    ///< moecl_dtype of the router's weights; 0: there is no router
  char shared_queue[128];  ///< the queue on which the shared experts run, and why; "" if there are none
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
/// Replaces the weights by those of a layer of another checkpoint, of the same shape and formats. No more memory is
/// held. Passes enqueued on `stream` before this call use the old weights. No pass may be under way on another stream.
/// Stops the host.
/// Errors: as moecl_layer_load; invalid_argument  another shape or format; invalid_data  NaN or infinity in weights
///         that `quantize` turns into codes: the layer keeps its weights. If writing itself fails (device_error,
///         out_of_memory, io_error of a shard), every pass and every replacement of one expert is refused until
///         moecl_layer_reload or moecl_layer_replace succeeds
moecl_status moecl_layer_reload(moecl_layer* layer, moecl_stream* stream, const char* model_dir, int32_t decoder_layer);
/// As moecl_layer_reload, but from raw weights. Reads only the sizes and weights of `desc`. Errors: also as
/// moecl_layer_create
moecl_status moecl_layer_replace(moecl_layer* layer, moecl_stream* stream, const moecl_layer_desc* desc);
/// The same for one expert. @param desc  Describes this expert alone: `experts` is 1. Only sizes and matrices are read.
/// Errors: invalid_argument  another shape or format, or `expert` is not in [0, E)
moecl_status moecl_layer_replace_expert(moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                        const moecl_layer_desc* desc);
/// NULL is no error. The layer's commands must have completed.
moecl_status moecl_layer_destroy(moecl_layer* layer);
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_layer_describe(const moecl_layer* layer, moecl_layer_info* out_info);
/// @param out_counts  Filled as far as its size_bytes reaches. Stops the host.
moecl_status moecl_layer_residency(const moecl_layer* layer, moecl_stream* stream, moecl_residency_counts* out_counts);
/// Bytes of workspace that moecl_layer_forward needs for up to `tokens` tokens.
moecl_status moecl_layer_workspace_bytes(const moecl_layer* layer, int64_t tokens, uint64_t* out_workspace_bytes);

/// Compiles now the kernels of passes of 1 to 16 tokens, of each power of two up to `max_tokens`, and of `max_tokens`,
/// with the operands that every pass has: x to out. Passes with a given routing, 64-bit ids or further outputs may
/// compile at first use. Enqueues nothing, stops the host. Errors: build_failed; invalid_argument  max_tokens is
/// negative
moecl_status moecl_layer_compile(const moecl_layer* layer, moecl_stream* stream, int64_t max_tokens);

/// A tensor in the caller's cl_mem. The byte offset is a multiple of the element size. `memory` NULL: absent.
typedef struct moecl_device_array {
  struct _cl_mem* memory;
  uint64_t offset_bytes;
} moecl_device_array;

/// The operands of a pass. What the pass writes (outputs, fault, workspace) must not overlap any other operand, not
/// even through sub-buffers. Inputs may overlap inputs. Over ranks `out` may be x itself. Without tokens every `memory`
/// may be NULL.
///
/// Routing, one of:
/// - neither logits nor ids: the layer's router gives logits, and the layer's rule chooses
/// - given_logits: the layer's rule chooses by these logits
/// - ids and weights: the caller's choice, without token_ids and finished
/// A layer with a table of experts (vocabulary > 0) also takes token_ids, unless ids are given: the table chooses the
/// experts, and the logits give their weights.
///
/// At least one of out, routed_out, shared_out and expert_rows must be present. L is H, and C is E, unless the layer
/// says otherwise.
typedef struct moecl_forward_args {
  uint64_t size_bytes;
  int64_t tokens;  ///< T
  /// Shape: [T, H] of the layer's dtype. May be NULL if only expert_input is needed: the routing is given, and no
  /// shared experts are asked for
  moecl_device_array x;
  /// optional out. Shape: [T, L] of out_dtype: the sum of the routed and the shared part, if both have L columns
  moecl_device_array out;
  int32_t out_dtype;                 ///< moecl_dtype of out, routed_out and shared_out; 0: the layer's
  moecl_device_array ids;            ///< optional: the caller's choice. Shape: [T, K] of ids_dtype; -1: no expert
  moecl_device_array weights;        ///< required with ids, else absent. Shape: [T, K] f32
  moecl_device_array router_logits;  ///< optional out. Shape: [T, C] f32; not with given_logits
  moecl_device_array topk_ids;       ///< optional out. Shape: [T, K] of ids_dtype; not with the caller's own ids
  moecl_device_array topk_weights;   ///< optional out. Shape: [T, K] f32; not with the caller's own ids
  moecl_device_array routed_out;     ///< optional out. Shape: [T, L] of out_dtype, `out` without the shared experts
  /// The offset is a multiple of 256. The memory belongs to this pass alone until its last command completes. Over
  /// ranks optional: with NULL the pass uses memory that all layers of the ranks share
  moecl_device_array workspace;
  /// at least the result of moecl_layer_workspace_bytes, over ranks of moecl_parallel_layer_workspace_bytes; 0: up to
  /// the end of the cl_mem
  uint64_t workspace_bytes;
  moecl_device_array fault;         ///< optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after
  moecl_device_array finished;      ///< optional, not with ids. Shape: [T] bytes; not 0: the token takes no expert
  int32_t ids_dtype;                ///< MOECL_I32 or MOECL_I64, of ids, topk_ids and expert_num_tokens; 0: int32
  int32_t logits_dtype;             ///< moecl_dtype of given_logits; 0: f32
  moecl_device_array given_logits;  ///< optional: logits of the caller's own router. Shape: [T, C] of logits_dtype
  /// optional unless L differs from H: input of the routed experts alone; the router and the shared experts take x.
  /// Shape: [T, L] of expert_input_dtype
  moecl_device_array expert_input;
  moecl_device_array shared_out;  ///< optional out. Shape: [T, H] of out_dtype: the shared experts' part alone
  /// optional out: rows that each expert of this rank got, from all ranks. Shape: [places of this rank] of ids_dtype
  moecl_device_array expert_num_tokens;
  int32_t expert_input_dtype;  ///< moecl_dtype; 0: that of x. Codes, MOECL_I8 or MOECL_F8_E4M3, need scales
  int32_t token_ids_dtype;     ///< MOECL_I32 or MOECL_I64; 0: int32
  /// scales, if expert_input has codes. The codes are in the format of the layer's activations and are not quantized
  /// again. Shape: [T] f32, one scale per token; or [T, ceil(L / expert_input_group)] f32, for MX bytes (e8m0)
  moecl_device_array expert_input_scale;
  int64_t expert_input_group;    ///< columns that share a scale; 0: all of a token
  moecl_device_array token_ids;  ///< for layers with a table, unless ids are given. Shape: [T] of token_ids_dtype
  /// optional out, for callers that sum the rows themselves: row t * K + k is the output of expert k of token t,
  /// without its weight; 0 if there is none. Shape: [T * K, L] of out_dtype. Over ranks only with all-to-all, or MC2 in
  /// f32, and without tp groups
  moecl_device_array expert_rows;
  /// optional in/out: the pass adds the number of rows that each expert of this rank got. This records loads over
  /// passes, without a wait. Zero the tensor first; use one for prefill and one for decode to tell them apart. Shape:
  /// [places of this rank] int64
  moecl_device_array expert_load;
} moecl_forward_args;

/// out = MoE(x).
///
/// Async: enqueues kernels and returns; never waits for the device. A kernel that no earlier pass used is compiled
/// first, or read from the disk cache.
/// Empty: T = 0 runs no kernel, but takes wait_events and gives out_event as always.
/// @param num_wait_events  0 exactly when wait_events is NULL.
/// @param wait_events      Must complete before the first kernel starts, in addition to the stream's own order.
/// @param out_event        NULL, or receives an event that completes with the pass; the caller releases it. A pass does
///                         not flush: call clFlush on the stream's queue before another queue waits for the event or
///                         the host polls it.
/// Errors: invalid_argument  before anything is enqueued; build_failed, device_error
moecl_status moecl_layer_forward(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                 uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                 struct _cl_event** out_event);
/// Brings experts into device memory that a later pass may need, if the layer has a memory budget: those that these
/// tokens would choose in this layer. Given the hidden states of the previous layer, the experts arrive while that
/// layer computes. `stream` differs from the stream of the passes; passes and prefetches order themselves. Results keep
/// their bits.
///
/// Brings nothing without a budget, for more tokens than fit the budget with all their experts, or for tokens beyond
/// chunk_tokens.
/// @param args  tokens, the routing (x, ids or given_logits, and their fields), and a workspace for this call alone;
///              outputs and expert_input are ignored
/// Async, Empty, events, Errors: as moecl_layer_forward. Threads: one call at a time, moecl_layer_forward of this layer
/// included
moecl_status moecl_layer_prefetch(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                  uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                  struct _cl_event** out_event);
/// Reads a fault word that earlier commands of the stream were given. Stops the host. The word keeps its value: zero it
/// before you use it again.
/// Errors: invalid_argument  the word holds a fault; the message has its kind, an index and a value. Kinds: FaultCode
///         of <moecl/fault.hpp>, such as an id outside [-1, C), an expert without room, a work-group that came too
///         late. Slots are numbered within a chunk of the pass (moecl_layer_info.chunk_tokens), over ranks within the
///         slots that a rank sorts
moecl_status moecl_check_fault(moecl_stream* stream, moecl_device_array fault);

#ifdef __cplusplus
}
#endif
#endif
