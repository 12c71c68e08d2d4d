#ifndef MOECL_PARALLEL_LAYER_H
#define MOECL_PARALLEL_LAYER_H
/// @file
/// One MoE layer over the ranks of a communicator, which divide its experts among them, or each expert.
///
/// Every rank makes a layer of its own and calls the same functions with its own tokens, in a host thread of its own;
/// what rank_group.h says of calls by all ranks holds here too. dispatch/STRATEGIES.md has what travels.
#include <moecl/rank_group.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's part of a layer.
typedef struct moecl_parallel_layer moecl_parallel_layer;

/// How tokens travel to the ranks that own their experts, and back.
typedef enum moecl_strategy {
  MOECL_STRATEGY_AUTO = 0,        ///< by max_tokens; moecl_parallel_layer_describe has the choice and its reason
  MOECL_STRATEGY_MC2 = 1,         ///< windows of fixed capacity; the host never learns a count
  MOECL_STRATEGY_ALL_GATHER = 2,  ///< every rank gets all tokens; partial sums are reduced and scattered
  MOECL_STRATEGY_ALL2ALL_V = 3,   ///< exactly the rows that each rank needs; one host read of the split sizes
  MOECL_STRATEGY_MULTICAST = 4    ///< as all-gather, by broadcasts and one all-reduce
} moecl_strategy;

/// By which rules MOECL_STRATEGY_AUTO chooses: those of vllm-ascend for a kind of machine, or what was measured here.
typedef enum moecl_strategy_rules {
  MOECL_RULES_ONCE = 0,  ///< as A3, but once for the layer, by max_tokens
  MOECL_RULES_A2 = 1,    ///< 910B. These and the following choose for each pass, by its tokens
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
  MOECL_PLACE_LINEAR = 0,      ///< consecutive runs, the remainder to the first ranks
  MOECL_PLACE_ROUND_ROBIN = 1  ///< expert e on rank e % R, for routers with expert groups; else linear
} moecl_expert_placement;

/// How hidden states travel. Rows come back in f32, but with int8 and MC2 as codes too.
typedef enum moecl_wire_format {
  MOECL_WIRE_NONE = 0,  ///< in their own type
  MOECL_WIRE_INT8 = 1,  ///< codes with a scale a row
  MOECL_WIRE_FP8 = 2,   ///< e4m3 with a scale a row
  MOECL_WIRE_MXFP8 = 3  ///< e4m3 with an e8m0 scale for each 32 columns
} moecl_wire_format;

/// What the ranks of a tp group, who have the same tokens, divide of the shared experts.
typedef enum moecl_shared_sharding {
  MOECL_SHARED_REPLICATED = 0,   ///< nothing: each computes all its tokens
  MOECL_SHARED_TOKENS = 1,       ///< each computes a share of the tokens, and gets the others'
  MOECL_SHARED_INTERMEDIATE = 2  ///< each has a part of the intermediate size; partial sums are reduced
} moecl_shared_sharding;

/// Which of an expert's places a token of a rank takes.
typedef enum moecl_replica_choice {
  MOECL_REPLICA_TOKEN_HASH = 0,  ///< by the token's number: any
  MOECL_REPLICA_PER_RANK = 1     ///< the rank's own, else one by the rank's number (log2phy)
} moecl_replica_choice;

/// What a token gets whose expert has no place at present.
typedef enum moecl_lost_experts {
  MOECL_LOST_REFUSED = 0,  ///< nothing of that expert, and the pass sets its fault word
  MOECL_LOST_MASKED = 1    ///< its other experts, with weights that add up to what all of them did
} moecl_lost_experts;

/// The same on every rank; R ranks.
typedef struct moecl_parallel_options {
  uint64_t size_bytes;
  int32_t tp;                 ///< ranks that bring the same tokens; divides R. 0: 1
  int32_t expert_sharding;    ///< moecl_expert_sharding
  int32_t strategy;           ///< moecl_strategy
  int32_t placement;          ///< moecl_expert_placement
  int32_t redundant_experts;  ///< second places, of experts 0, 1, 2, ...; R divides experts and these together
  int32_t wire;               ///< moecl_wire_format
  int32_t ranks_per_node;     ///< neighbours that reach each other faster than others; divides R. 0: all
  int32_t shared_sharding;    ///< moecl_shared_sharding
  int32_t replace_allreduce;  ///< not 0: ranks of a tp group bring different tokens, and get sums of those only
  int32_t may_lack;           ///< not 0: expert_of_place may have free places (-1), and lack experts
  int64_t max_tokens;         ///< by which MOECL_STRATEGY_AUTO chooses: the most that a dp rank will bring; 0: unknown,
                              ///< then all-to-all, but all-gather where experts are not whole
  /// Dual batch overlap: passes of so many tokens or more, on the dp rank that has most, run as two micro-batches:
  /// while rows of one travel, the other's kernels run. Twice the workspace. 0: never. vLLM's default is 512
  int64_t dbo_prefill_token_threshold;
  int64_t dbo_decode_token_threshold;  ///< the same for steps of uniform_decode. vLLM's default is 32
  int32_t rules;                       ///< moecl_strategy_rules
  int32_t places;                      ///< of expert_of_place, of all ranks together
  /// NULL: by placement and redundant_experts. Else the expert of each place (phys2log); places count linearly over the
  /// ranks, the remainder to the first ranks, and every expert has one at least, unless may_lack
  const int32_t* expert_of_place;
  /// Of prefill context parallelism: ranks that bring other tokens of the same requests; tp * pcp divides R. Rank =
  /// (dp_rank * pcp + pcp_rank) * tp + tp_rank, and steps count dp and pcp ranks together. 0: 1
  int32_t pcp;
  int32_t sp;              ///< of sequence parallelism: 0 or 1, or tp, which is what replace_allreduce says
  int32_t replica_choice;  ///< moecl_replica_choice
  int32_t lost_experts;    ///< moecl_lost_experts
  /// optional, of ranks on unlike devices: experts of each of the R ranks, which add up to all of them and stand in
  /// consecutive runs, such as moecl_shares_by_rates says; instead of placement and expert_of_place
  const int32_t* shares;
} moecl_parallel_options;

/// Experts of each rank in proportion to what its device does, as moecl_parallel_options::shares takes them.
/// @param rates  of each rank, in one unit. Shape: [ranks]. @param out_shares  Shape: [ranks]
/// Errors: invalid_argument  a rate is negative, or all are 0
moecl_status moecl_shares_by_rates(int32_t experts, const double* rates, int32_t ranks, int32_t* out_shares);

/// What a layer over ranks became.
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
  int32_t strategy;   ///< moecl_strategy, never AUTO; with rules the last pass's
  int32_t placement;  ///< moecl_expert_placement
  // Of this rank.
  int32_t places;         ///< of experts, copies included
  int32_t first_place;    ///< they count linearly over the ranks
  int32_t reserved;       ///< 0
  uint64_t weight_bytes;  ///< device memory held
  /// device memory of exchanges and of rows between kernels, of all layers of the ranks; grows with the tokens seen
  uint64_t workspace_bytes;
  uint64_t bytes_received;       ///< from other ranks in the last pass
  uint64_t bytes_between_nodes;  ///< of those, from ranks of other nodes
  char strategy_reason[256];
  char placement_reason[256];  ///< also why it is not the one that was wanted
  int64_t expert_hidden;       ///< as in moecl_layer_info
  int64_t vocabulary;          ///< the same
  int32_t router_dtype;        ///< the same
  int32_t all_places;          ///< of experts, of all ranks together
  int32_t dp_rank;             ///< of this rank, in the grid of dp, pcp and tp
  int32_t pcp_rank;            ///< the same
  int32_t tp_rank;             ///< the same
  int32_t reserved_2;          ///< 0
  int64_t choices;             ///< as in moecl_layer_info
} moecl_parallel_layer_info;

/// This rank's part of a layer of a Hugging Face model directory; it reads its own experts alone. Stops the host.
///
/// @param layer     Decoder layer; -1: the first that has experts.
/// @param parallel  NULL for the defaults. @param options  NULL for the defaults.
/// Errors: as moecl_layer_load; invalid_argument  options that do not fit the ranks or each other, or layers, options
///         and places of experts that are not the same on all ranks;
///         unsupported  MC2 and all-to-all where experts are not whole, the batched layout with a wire
moecl_status moecl_parallel_layer_load(moecl_communicator* communicator, const char* model_dir, int32_t layer,
                                       const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                       moecl_parallel_layer** out_layer);
/// The same from raw weights, those of all experts; a rank reads its own alone. Stops the host.
moecl_status moecl_parallel_layer_create(moecl_communicator* communicator, const moecl_layer_desc* desc,
                                         const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                         moecl_parallel_layer** out_layer);
/// This rank's share of other weights of the same shape and formats, into the memory of the old ones; passes before
/// have those. Exchanges nothing, so ranks that are to agree meet (moecl_barrier) before the next pass. Stops the host.
/// Errors: as moecl_layer_reload
moecl_status moecl_parallel_layer_reload(moecl_parallel_layer* layer, const char* model_dir, int32_t decoder_layer);
/// From raw weights, as moecl_parallel_layer_reload from a checkpoint.
moecl_status moecl_parallel_layer_replace(moecl_parallel_layer* layer, const moecl_layer_desc* desc);
/// The same of the expert at one place of this rank, given whole. @param place  Range: [0, places). @param desc  As in
/// moecl_layer_replace_expert
moecl_status moecl_parallel_layer_replace_expert(moecl_parallel_layer* layer, int32_t place,
                                                 const moecl_layer_desc* desc);
/// NULL is no error. The rank's commands must have completed. The communicator may go before.
moecl_status moecl_parallel_layer_destroy(moecl_parallel_layer* layer);
/// @param out_info  Filled as far as its size_bytes reaches.
moecl_status moecl_parallel_layer_describe(const moecl_parallel_layer* layer, moecl_parallel_layer_info* out_info);
/// The expert of each place of all ranks, as moecl_parallel_options::expert_of_place takes them.
/// @param count  all_places. Errors: invalid_argument  another count
moecl_status moecl_parallel_layer_places(const moecl_parallel_layer* layer, int32_t* out_expert_of_place,
                                         int32_t count);
/// The experts of this rank's places in a line, cut to fit with its NUL: "0->4, 1->5", as engines log it.
moecl_status moecl_parallel_layer_expert_map(const moecl_parallel_layer* layer, char* out_text, uint64_t text_bytes);

/// What became of a memory budget on this rank. Stops the host.
moecl_status moecl_parallel_layer_residency(const moecl_parallel_layer* layer, moecl_residency_counts* out_counts);

/// Other experts stand at the places from the next pass on; their weights are there, by
/// moecl_parallel_layer_replace_expert. By all ranks; the table is swapped on each rank's stream.
/// @param expert_of_place  Of all ranks' places. @param count  all_places. @param may_lack  Not 0: places may be free
///                         (-1), and experts without a place be gone
/// Errors: invalid_argument  another count, an expert without a place, or ranks disagree: the old table stays, and the
///         group ends
moecl_status moecl_parallel_layer_update_expert_map(moecl_parallel_layer* layer, const int32_t* expert_of_place,
                                                    int32_t count, int32_t may_lack);

/// The same layer, with the weights it has, in another group: what is left of the old one, or more. Nothing of this
/// layer may be under way. By all ranks of the new group, of which those that are new create or load their layers there
/// with that table and the same options, or have done so in a group of their own while the others had passes
/// (may_lack). What the layer goes by stays, its strategy too.
/// @param communicator     Of this rank in the new group, on the stream that the layer has. The old one may go
/// @param expert_of_place  Of all ranks' places there, as many for this rank as it has. @param count  Of them
/// @param may_lack         As of moecl_parallel_layer_update_expert_map
/// Errors: invalid_argument  another number of places, an expert without a place, or ranks disagree; unsupported  ranks
///         of several nodes. The layer is then as it was; the new group ends
moecl_status moecl_parallel_layer_in_group(moecl_parallel_layer* layer, moecl_communicator* communicator,
                                           const int32_t* expert_of_place, int32_t count, int32_t may_lack);

/// Experts on their way to other ranks, beside passes: <moecl/expert_migration.hpp> says how.
typedef struct moecl_expert_migration moecl_expert_migration;
/// Nothing moves yet. By all ranks. Places may be free (-1) where the layer's table may have such.
/// @param bytes_per_step  What a rank gets in a step at most; 0: all at once
/// Errors: as moecl_parallel_layer_update_expert_map; unsupported  ranks have parts of every expert
moecl_status moecl_expert_migration_create(moecl_parallel_layer* layer, const int32_t* expert_of_place, int32_t count,
                                           uint64_t bytes_per_step, moecl_expert_migration** out_migration);
/// Starts the next moves. By all ranks, between passes. @param out_left  experts that no step has started yet
moecl_status moecl_expert_migration_step(moecl_expert_migration* migration, int64_t* out_left);
/// Passes from here on have the new table. By all ranks, when all moves have started.
moecl_status moecl_expert_migration_commit(moecl_expert_migration* migration);
/// NULL is no error. Without a commit the old table stays. Goes before the layer. Stops the host until what was started
/// has come.
moecl_status moecl_expert_migration_destroy(moecl_expert_migration* migration);

/// How a pass goes, as all ranks say alike. All zero: as moecl_parallel_layer_forward.
typedef struct moecl_step {
  uint64_t size_bytes;
  int32_t strategy;  ///< moecl_strategy, over the same weights; AUTO: the layer's
  /// Not 0: what the ranks of a tp group get are parts of out, routed_out and shared_out, which added up are what each
  /// would get; nothing travels within the group for them (reduce_results off)
  int32_t partial_sums;
  /// The most tokens that a dp rank brings, at least as many as one does: what memory, windows and rules go by. 0: what
  /// the rank that has most brings
  int64_t max_tokens_across_dp;
  /// Optional: tokens of each of the R / tp dp ranks, rows of padding included; they must be what ranks bring. With
  /// replace_allreduce of each of the R ranks
  const int64_t* num_tokens_across_dp;
  const int64_t* cu_tokens_across_dp;  ///< optional: the same as cumulative ends
  /// optional: the mask of this rank, where a pass has none. Shape: [T] u8: tokens with another value than 0 take no
  /// expert
  moecl_device_array finished;
  int64_t tokens;          ///< T of this rank, which the mask is of; 0 without a mask
  int32_t uniform_decode;  ///< not 0: every request brings as many tokens, so thresholds are those of decoding
  int32_t micro_batches;   ///< 1 or 2; 0: as the layer's thresholds say
} moecl_step;

/// out = MoE(x), on the rank's stream, by all ranks. `args->workspace` is NULL: the pass takes memory that all layers
/// of the ranks share. A workspace of the caller's needs a step with max_tokens_across_dp
/// (moecl_parallel_layer_forward_step); here it is invalid_argument. ids and topk_ids are experts, not places;
/// expert_num_tokens counts by place.
///
/// Async: waits for the peers' host threads; stops the host for a device only in all-to-all, once.
/// Empty: T = 0 takes part in the exchange.
/// Errors: invalid_argument  before any rank enqueues anything; deadline_exceeded  a peer failed or did not come
moecl_status moecl_parallel_layer_forward(moecl_parallel_layer* layer, const moecl_forward_args* args);
/// The same by another strategy than the layer's, or with results that are not reduced.
/// @param step  NULL for the defaults. Errors: as above, also where ranks disagree about the step
moecl_status moecl_parallel_layer_forward_step(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                               const moecl_step* step);
/// The same with events. They are of this rank's stream alone: the peers' ranks have their own.
/// @param num_wait_events,wait_events,out_event  As in moecl_layer_forward
moecl_status moecl_parallel_layer_forward_events(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_step* step, uint32_t num_wait_events,
                                                 struct _cl_event* const* wait_events, struct _cl_event** out_event);
/// Brings experts of this rank's places that a pass to come may need to device memory, as moecl_layer_prefetch: those
/// that the tokens of all ranks would choose here. By all ranks, in the same order as their passes. It runs on a queue
/// of the layer's own, after what the rank's stream was given so far; the next pass of this layer waits for it. Results
/// keep their bits. Nothing is enqueued where no rank has a memory budget.
/// @param args  x, ids with weights or given_logits, and finished; they stay as they are until out_event
/// @param num_wait_events,wait_events,out_event  As in moecl_layer_forward, of that queue
/// Errors, Async: as moecl_parallel_layer_forward. Empty: T = 0 takes part
moecl_status moecl_parallel_layer_prefetch(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                           uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                           struct _cl_event** out_event);
/// A step that all ranks agreed about once, for passes of any number of layers of theirs.
typedef struct moecl_agreed_step moecl_agreed_step;
/// By all ranks: one meeting of their host threads, no device work.
/// @param layer   One of the layers. @param step  NULL for the defaults. @param tokens  T of this rank
/// Errors: invalid_argument  on every rank: the first thing that differs, counts that are not what ranks bring
moecl_status moecl_parallel_layer_agree(moecl_parallel_layer* layer, const moecl_step* step, int64_t tokens,
                                        moecl_agreed_step** out_step);
/// NULL is no error. Lifetime: passes need it no longer than their call.
moecl_status moecl_agreed_step_destroy(moecl_agreed_step* step);
/// As moecl_parallel_layer_forward_step, but asks no rank about the step again: where kernels of all ranks wait for
/// each other (mc2 over peer windows) host threads do not meet at all. The ranks make the same passes in the same
/// order.
///
/// Errors: as moecl_parallel_layer_forward; also invalid_argument  another number of tokens, or a step of other ranks.
///         What one rank alone is refused ends the group, but others may have enqueued their part. Ranks of a tp group
///         that divide the shared experts' intermediate size all ask for routed_out or shared_out, or none does
moecl_status moecl_parallel_layer_forward_agreed(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_agreed_step* step);
/// Bytes of workspace that a pass of such a step takes at most, whose max_tokens_across_dp is said.
/// Errors: invalid_argument; unsupported  a strategy that the layer cannot take
moecl_status moecl_parallel_layer_workspace_bytes(const moecl_parallel_layer* layer, const moecl_step* step,
                                                  uint64_t* out_workspace_bytes);

#ifdef __cplusplus
}
#endif
#endif
