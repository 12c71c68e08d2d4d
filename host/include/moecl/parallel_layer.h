#ifndef MOECL_PARALLEL_LAYER_H
#define MOECL_PARALLEL_LAYER_H
/// @file
/// One MoE layer over the ranks of a communicator. The ranks divide its experts among them, or each expert.
///
/// Every rank makes a layer of its own and calls the same functions with its own tokens, in its own host thread. Calls
/// by all ranks follow the rules of rank_group.h. dispatch/STRATEGIES.md describes what travels between ranks.
#include <moecl/rank_group.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's part of a layer.
typedef struct moecl_parallel_layer moecl_parallel_layer;

/// How tokens travel to the ranks that own their experts, and back.
typedef enum moecl_strategy {
  MOECL_STRATEGY_AUTO = 0,        ///< chosen by max_tokens; moecl_parallel_layer_describe has the choice and its reason
  MOECL_STRATEGY_MC2 = 1,         ///< windows of fixed capacity; the host reads no counts
  MOECL_STRATEGY_ALL_GATHER = 2,  ///< every rank gets all tokens; partial sums are reduced and scattered
  MOECL_STRATEGY_ALL2ALL_V = 3,   ///< exactly the rows that each rank needs; the host reads the split sizes once
  MOECL_STRATEGY_MULTICAST = 4    ///< as all-gather, with broadcasts and one all-reduce
} moecl_strategy;

/// The rules by which MOECL_STRATEGY_AUTO chooses: those of vllm-ascend for a kind of machine, or those measured here.
typedef enum moecl_strategy_rules {
  MOECL_RULES_ONCE = 0,  ///< as A3, but once for the layer, by max_tokens
  MOECL_RULES_A2 = 1,    ///< 910B. This and the following rules choose for each pass, by its tokens
  MOECL_RULES_A3 = 2,    ///< 910C
  MOECL_RULES_A5 = 3,    ///< 950
  MOECL_RULES_310P = 4,
  MOECL_RULES_MOECL = 5  ///< measured with this library: dispatch/STRATEGIES.md
} moecl_strategy_rules;

/// What the ranks divide: the experts, or the intermediate size of each.
typedef enum moecl_expert_sharding {
  MOECL_SHARD_EXPERTS = 0,      ///< expert-parallel
  MOECL_SHARD_INTERMEDIATE = 1  ///< tensor-parallel; only with all-gather and multicast
} moecl_expert_sharding;

/// Which experts a rank has.
typedef enum moecl_expert_placement {
  MOECL_PLACE_LINEAR = 0,      ///< consecutive experts; the first ranks take the remainder
  MOECL_PLACE_ROUND_ROBIN = 1  ///< expert e on rank e % R, for routers with expert groups; else linear
} moecl_expert_placement;

/// The format in which hidden states travel. Rows return in f32; with int8 and MC2 they return as codes too.
typedef enum moecl_wire_format {
  MOECL_WIRE_NONE = 0,  ///< in their own type
  MOECL_WIRE_INT8 = 1,  ///< codes with one scale per row
  MOECL_WIRE_FP8 = 2,   ///< e4m3 with one scale per row
  MOECL_WIRE_MXFP8 = 3  ///< e4m3 with an e8m0 scale for each 32 columns
} moecl_wire_format;

/// How the ranks of a tp group, which have the same tokens, divide the shared experts.
typedef enum moecl_shared_sharding {
  MOECL_SHARED_REPLICATED = 0,   ///< not at all: each rank computes all its tokens
  MOECL_SHARED_TOKENS = 1,       ///< each rank computes a share of the tokens, and gets the others'
  MOECL_SHARED_INTERMEDIATE = 2  ///< each rank has a part of the intermediate size; partial sums are reduced
} moecl_shared_sharding;

/// Which place of an expert with several places a token takes.
typedef enum moecl_replica_choice {
  MOECL_REPLICA_TOKEN_HASH = 0,  ///< any of them, by a hash of the token's number
  MOECL_REPLICA_PER_RANK = 1     ///< the place on the token's rank, else one chosen by the rank's number (log2phy)
} moecl_replica_choice;

/// What a token gets if one of its experts has no place at present.
typedef enum moecl_lost_experts {
  MOECL_LOST_REFUSED = 0,  ///< nothing from that expert; the pass sets its fault word
  MOECL_LOST_MASKED = 1    ///< its other experts, with weights scaled up to the sum of all its weights
} moecl_lost_experts;

/// Options of a layer over R ranks; the same on every rank.
typedef struct moecl_parallel_options {
  uint64_t size_bytes;
  int32_t tp;                 ///< ranks that bring the same tokens; divides R. 0: 1
  int32_t expert_sharding;    ///< moecl_expert_sharding
  int32_t strategy;           ///< moecl_strategy
  int32_t placement;          ///< moecl_expert_placement
  int32_t redundant_experts;  ///< number of second places, for experts 0, 1, 2, ...; R divides experts +
                              ///< redundant_experts
  int32_t wire;               ///< moecl_wire_format
  int32_t ranks_per_node;     ///< ranks of a node, which reach each other faster than others; divides R. 0: all
  int32_t shared_sharding;    ///< moecl_shared_sharding
  int32_t replace_allreduce;  ///< not 0: ranks of a tp group bring different tokens; each gets the sums of its own only
  int32_t may_lack;           ///< not 0: expert_of_place may have free places (-1), and experts may have no place
  int64_t max_tokens;         ///< max tokens that a dp rank will bring; MOECL_STRATEGY_AUTO chooses by it. 0: unknown,
                              ///< which means all-to-all, or all-gather if ranks have parts of experts
  /// Dual batch overlap: a pass runs as two micro-batches if the dp rank with the most tokens has at least this many.
  /// While the rows of one micro-batch travel, the kernels of the other run. Twice the workspace. 0: never. vLLM's
  /// default is 512
  int64_t dbo_prefill_token_threshold;
  int64_t dbo_decode_token_threshold;  ///< the same for steps of uniform_decode. vLLM's default is 32
  int32_t rules;                       ///< moecl_strategy_rules
  int32_t places;                      ///< number of places in expert_of_place, over all ranks
  /// The expert of each place (phys2log); NULL: placement and redundant_experts decide. Places are numbered linearly
  /// over the ranks; the first ranks take the remainder. Every expert has at least one place, unless may_lack
  const int32_t* expert_of_place;
  /// Prefill context parallelism: ranks that bring other tokens of the same requests; tp * pcp divides R. Rank =
  /// (dp_rank * pcp + pcp_rank) * tp + tp_rank. The dp ranks of a step are those of dp and pcp together. 0: 1
  int32_t pcp;
  int32_t sp;              ///< sequence parallelism: 0, 1 or tp; tp means the same as replace_allreduce
  int32_t replica_choice;  ///< moecl_replica_choice
  int32_t lost_experts;    ///< moecl_lost_experts
  /// optional, for ranks on unlike devices: number of experts of each of the R ranks, such as moecl_shares_by_rates
  /// gives. They add up to all experts, which stand in consecutive runs. Replaces placement and expert_of_place
  const int32_t* shares;
} moecl_parallel_options;

/// The number of experts of each rank, in proportion to the rate of its device, for moecl_parallel_options::shares.
/// @param rates  of each rank, in one unit. Shape: [ranks]. @param out_shares  Shape: [ranks]
/// Errors: invalid_argument  a rate is negative, or all are 0
moecl_status moecl_shares_by_rates(int32_t experts, const double* rates, int32_t ranks, int32_t* out_shares);

/// Properties of a layer over ranks.
typedef struct moecl_parallel_layer_info {
  uint64_t size_bytes;
  // Of the whole layer.
  int64_t hidden;
  int64_t intermediate;
  int64_t shared_intermediate;
  int32_t experts;
  int32_t top_k;
  int32_t dtype;  ///< moecl_dtype that `x` must have
  // What was chosen.
  int32_t strategy;   ///< moecl_strategy, never AUTO; with rules: that of the last pass
  int32_t placement;  ///< moecl_expert_placement
  // Of this rank.
  int32_t places;         ///< number of places, copies of experts included
  int32_t first_place;    ///< places are numbered linearly over the ranks
  int32_t reserved;       ///< 0
  uint64_t weight_bytes;  ///< device memory held
  /// device memory for exchanges and for rows between kernels, of all layers of the ranks; grows with the tokens seen
  uint64_t workspace_bytes;
  uint64_t bytes_received;       ///< from other ranks in the last pass
  uint64_t bytes_between_nodes;  ///< the part of bytes_received that came from other nodes
  char strategy_reason[256];
  char placement_reason[256];  ///< also why the placement is not the one that was wanted
  int64_t expert_hidden;       ///< as in moecl_layer_info
  int64_t vocabulary;          ///< the same
  int32_t router_dtype;        ///< the same
  int32_t all_places;          ///< number of places of all ranks
  int32_t dp_rank;             ///< of this rank, in the grid of dp, pcp and tp
  int32_t pcp_rank;            ///< the same
  int32_t tp_rank;             ///< the same
  int32_t reserved_2;          ///< 0
  int64_t choices;             ///< as in moecl_layer_info
} moecl_parallel_layer_info;

/// Loads this rank's part of a layer of a Hugging Face model directory. A rank reads only its own experts. Stops the
/// host.
///
/// @param layer     Decoder layer; -1: the first that has experts.
/// @param parallel  NULL for the defaults. @param options  NULL for the defaults.
/// Errors: as moecl_layer_load; invalid_argument  options do not fit the ranks or each other, or layers, options and
///         places of experts are not the same on all ranks; unsupported  MC2 or all-to-all with parts of experts, the
///         batched layout with a wire
moecl_status moecl_parallel_layer_load(moecl_communicator* communicator, const char* model_dir, int32_t layer,
                                       const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                       moecl_parallel_layer** out_layer);
/// The same from raw weights. `desc` has all experts; a rank reads only its own. Stops the host.
moecl_status moecl_parallel_layer_create(moecl_communicator* communicator, const moecl_layer_desc* desc,
                                         const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                         moecl_parallel_layer** out_layer);
/// Replaces this rank's part of the weights by other weights of the same shape and formats, in the memory of the old
/// ones. Earlier passes use the old weights. The ranks exchange nothing here: if they are to agree, they meet
/// (moecl_barrier) before the next pass. Stops the host.
/// Errors: as moecl_layer_reload
moecl_status moecl_parallel_layer_reload(moecl_parallel_layer* layer, const char* model_dir, int32_t decoder_layer);
/// As moecl_parallel_layer_reload, but from raw weights.
moecl_status moecl_parallel_layer_replace(moecl_parallel_layer* layer, const moecl_layer_desc* desc);
/// The same for the expert at one place of this rank. `desc` has the whole expert, as in moecl_layer_replace_expert.
/// @param place  Range: [0, places)
moecl_status moecl_parallel_layer_replace_expert(moecl_parallel_layer* layer, int32_t place,
                                                 const moecl_layer_desc* desc);
/// NULL is no error. The rank's commands must have completed. The communicator may be destroyed before.
moecl_status moecl_parallel_layer_destroy(moecl_parallel_layer* layer);
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_parallel_layer_describe(const moecl_parallel_layer* layer, moecl_parallel_layer_info* out_info);
/// The expert of each place of all ranks, in the form of moecl_parallel_options::expert_of_place.
/// @param count  all_places. Errors: invalid_argument  another count
moecl_status moecl_parallel_layer_places(const moecl_parallel_layer* layer, int32_t* out_expert_of_place,
                                         int32_t count);
/// The experts of this rank's places as one line of text, as engines log it: "0->4, 1->5". Cut to fit text_bytes with
/// its NUL.
moecl_status moecl_parallel_layer_expert_map(const moecl_parallel_layer* layer, char* out_text, uint64_t text_bytes);

/// Statistics of the memory budget of this rank. Stops the host.
moecl_status moecl_parallel_layer_residency(const moecl_parallel_layer* layer, moecl_residency_counts* out_counts);

/// Changes the experts of the places from the next pass on. Their weights are there already, by
/// moecl_parallel_layer_replace_expert. By all ranks; each rank swaps its table on its stream.
/// @param expert_of_place  Of all ranks' places. @param count  all_places. @param may_lack  Not 0: places may be free
///                         (-1), and experts may have no place
/// Errors: invalid_argument  another count, an expert without a place, or ranks disagree: the old table stays, and the
///         group ends
moecl_status moecl_parallel_layer_update_expert_map(moecl_parallel_layer* layer, const int32_t* expert_of_place,
                                                    int32_t count, int32_t may_lack);

/// Moves the layer, with its weights, into another group: what is left of the old one, or more. No command of this
/// layer may be under way. By all ranks of the new group. Ranks that are new create or load their layers there, with
/// this table and the same options, or have done so in a group of their own while the others had passes (may_lack). The
/// layer keeps its settings, its strategy too.
/// @param communicator     Of this rank in the new group, on the stream of the layer. The old one may be destroyed
/// @param expert_of_place  Of all ranks' places in the new group; this rank has as many as before. @param count  Of
///                         them
/// @param may_lack         As in moecl_parallel_layer_update_expert_map
/// Errors: invalid_argument  another number of places, an expert without a place, or ranks disagree; unsupported  ranks
///         of several nodes. The layer then stays as it was; the new group ends
moecl_status moecl_parallel_layer_in_group(moecl_parallel_layer* layer, moecl_communicator* communicator,
                                           const int32_t* expert_of_place, int32_t count, int32_t may_lack);

/// A migration of experts to other ranks, concurrent with passes: see <moecl/expert_migration.hpp>.
typedef struct moecl_expert_migration moecl_expert_migration;
/// Prepares a migration; nothing moves yet. By all ranks. Places may be free (-1) if the layer's table may have free
/// places.
/// @param bytes_per_step  Max bytes that a rank receives in a step; 0: all at once
/// Errors: as moecl_parallel_layer_update_expert_map; unsupported  ranks have parts of every expert
moecl_status moecl_expert_migration_create(moecl_parallel_layer* layer, const int32_t* expert_of_place, int32_t count,
                                           uint64_t bytes_per_step, moecl_expert_migration** out_migration);
/// Starts the next moves. By all ranks, between passes. @param out_left  experts that no step has started yet
moecl_status moecl_expert_migration_step(moecl_expert_migration* migration, int64_t* out_left);
/// Later passes use the new table. By all ranks, once all moves have started.
moecl_status moecl_expert_migration_commit(moecl_expert_migration* migration);
/// NULL is no error. Without a commit the old table stays. Destroy the migration before the layer. Stops the host until
/// the moves that have started are complete.
moecl_status moecl_expert_migration_destroy(moecl_expert_migration* migration);

/// How a pass runs; the same on all ranks but for the mask. All zero: as moecl_parallel_layer_forward.
typedef struct moecl_step {
  uint64_t size_bytes;
  int32_t strategy;  ///< moecl_strategy, over the same weights; AUTO: the layer's
  /// Not 0: each rank of a tp group gets a part of out, routed_out and shared_out. The parts of the group add up to the
  /// result. The group exchanges nothing to reduce them (reduce_results off)
  int32_t partial_sums;
  /// Upper bound of the tokens that any dp rank brings. Memory, windows and rules go by this bound. 0: the tokens of
  /// the dp rank that brings most
  int64_t max_tokens_across_dp;
  /// Optional: tokens of each of the R / tp dp ranks, rows of padding included; with replace_allreduce of each of the R
  /// ranks. They must be what the ranks bring
  const int64_t* num_tokens_across_dp;
  const int64_t* cu_tokens_across_dp;  ///< optional: the same as cumulative ends
  /// optional: mask of the tokens of this rank, for passes without a mask of their own. Shape: [T] u8: a token whose
  /// value is not 0 takes no expert
  moecl_device_array finished;
  int64_t tokens;          ///< T of this rank's mask; 0 without a mask
  int32_t uniform_decode;  ///< not 0: every request brings the same number of tokens, so the decode threshold applies
  int32_t micro_batches;   ///< 1 or 2; 0: as the layer's thresholds say
} moecl_step;

/// out = MoE(x), on the rank's stream, by all ranks. `args->workspace` is NULL: the pass uses memory that all layers of
/// the ranks share. A workspace of the caller needs a step with max_tokens_across_dp
/// (moecl_parallel_layer_forward_step); here it is invalid_argument. ids and topk_ids number experts, not places;
/// expert_num_tokens counts by place.
///
/// Async: waits for the peers' host threads; stops the host for a device only in all-to-all, once.
/// Empty: T = 0 takes part in the exchange.
/// Errors: invalid_argument  before any rank enqueues anything; deadline_exceeded  a peer failed or did not come
moecl_status moecl_parallel_layer_forward(moecl_parallel_layer* layer, const moecl_forward_args* args);
/// The same as `step` says: by another strategy than the layer's, or without reducing results.
/// @param step  NULL for the defaults. Errors: as above, also where ranks disagree about the step
moecl_status moecl_parallel_layer_forward_step(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                               const moecl_step* step);
/// The same with events, which concern this rank's stream alone. Each peer has its own.
/// @param num_wait_events,wait_events,out_event  As in moecl_layer_forward
moecl_status moecl_parallel_layer_forward_events(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_step* step, uint32_t num_wait_events,
                                                 struct _cl_event* const* wait_events, struct _cl_event** out_event);
/// Brings experts into device memory that a later pass may need, as moecl_layer_prefetch: those at this rank's places
/// that the tokens of all ranks would choose. By all ranks, in the same order as their passes. The prefetch runs on a
/// queue of the layer, after the commands enqueued on the rank's stream so far; the next pass of this layer waits for
/// it. Results keep their bits. Nothing is enqueued if no rank has a memory budget.
/// @param args  x, ids with weights or given_logits, and finished; they must not change before out_event completes
/// @param num_wait_events,wait_events,out_event  As in moecl_layer_forward, for that queue
/// Errors, Async: as moecl_parallel_layer_forward. Empty: T = 0 takes part
moecl_status moecl_parallel_layer_prefetch(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                           uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                           struct _cl_event** out_event);
/// A step that all ranks have agreed on once, for passes of any number of their layers.
typedef struct moecl_agreed_step moecl_agreed_step;
/// By all ranks. Their host threads meet once; no device work.
/// @param layer   One of the layers. @param step  NULL for the defaults. @param tokens  T of this rank
/// Errors: invalid_argument  on every rank: the first thing that differs between ranks, or counts that are not what the
///         ranks bring
moecl_status moecl_parallel_layer_agree(moecl_parallel_layer* layer, const moecl_step* step, int64_t tokens,
                                        moecl_agreed_step** out_step);
/// NULL is no error. Lifetime: a pass needs the step only during its call.
moecl_status moecl_agreed_step_destroy(moecl_agreed_step* step);
/// As moecl_parallel_layer_forward_step, but the ranks do not agree on the step again. If the kernels of all ranks wait
/// for each other (mc2 over peer windows), host threads do not meet at all. All ranks make the same passes in the same
/// order.
///
/// Errors: as moecl_parallel_layer_forward; also invalid_argument  another number of tokens, or a step of other ranks.
///         A call that is refused on one rank alone ends the group, but other ranks may have enqueued their part. If a
///         tp group divides the shared experts' intermediate size, either all its ranks ask for routed_out or
///         shared_out, or none does
moecl_status moecl_parallel_layer_forward_agreed(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_agreed_step* step);
/// Max bytes of workspace that a pass of this step takes; the step must have max_tokens_across_dp.
/// Errors: invalid_argument; unsupported  a strategy that the layer cannot take
moecl_status moecl_parallel_layer_workspace_bytes(const moecl_parallel_layer* layer, const moecl_step* step,
                                                  uint64_t* out_workspace_bytes);

#ifdef __cplusplus
}
#endif
#endif
