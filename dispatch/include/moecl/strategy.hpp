#pragma once
#include <moecl/combine.hpp>
#include <moecl/communicator.hpp>
#include <moecl/expert_map.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/routed_rows.hpp>
#include <moecl/wire_format.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// How tokens travel to the ranks that own their experts, and back.
enum class StrategyKind : std::uint8_t {
  mc2,         ///< windows of fixed capacity, so the host reads no counts; over nodes in two levels
  all_gather,  ///< all-gather of the tokens of all dp ranks; reduce-scatter of the partial sums
  all2all_v,   ///< all-to-all of exactly the rows that each rank needs; the host reads the split sizes once
  multicast    ///< as all_gather, with broadcasts to cumulative offsets and one all-reduce
};
/// "mc2"
const char* name(StrategyKind kind) noexcept;

/// What the ranks of a grid divide among themselves: one of both, never both, as in vLLM's FusedMoEParallelConfig.
enum class ExpertSharding : std::uint8_t {
  experts,      ///< expert-parallel: each rank has some experts, each one whole
  intermediate  ///< tensor-parallel: each rank has a part of every expert's intermediate size; needs every token
};
/// "experts", "intermediate"
const char* name(ExpertSharding sharding) noexcept;

/// One rank of a layer over a dp x tp grid: its position, its experts and its peers.
struct ExpertRank {
  /// @param world  All ranks of the grid; rank = dp_rank * tp + tp_rank. @param tp  Divides the world's size
  /// @param ranks_per_node  Ranks of a node, which reach each other faster than other ranks; divides the world's size.
  /// 0: all ranks are one node
  /// Errors: invalid_argument
  ExpertRank(const Communicator& world, std::int32_t tp, std::int32_t experts,
             ExpertSharding sharding = ExpertSharding::experts, std::int32_t ranks_per_node = 0);
  /// The same rank in a grid of its node's ranks only, with the node's experts. Every rank has tokens of its own.
  ExpertRank of_node() const;

  /// The same rank, with exchanges on a queue of their own: see Communicator::beside.
  ExpertRank beside() const;
  /// The same rank in a grid without tp: every rank brings tokens of its own.
  ExpertRank with_own_tokens() const;

  Communicator ep;     ///< all ranks; together they have all experts
  Communicator dp;     ///< ranks of the same tp rank, with other tokens
  Communicator tp;     ///< ranks with the same tokens
  Communicator node;   ///< ranks of this node
  Communicator peers;  ///< ranks with this rank's index in their node, one a node
  ExpertSharding sharding;
  std::int32_t ep_first_expert = 0, experts;  ///< experts of all ranks of `ep`
  std::int32_t first_expert, local_experts;   ///< this rank's run of them
};

/// Sizes and formats of a layer. They are the same for every rank; disagreement is an error on all ranks.
struct ExpertProblem {
  std::int64_t hidden = 0;
  std::int32_t top_k = 0;
  DType dtype = DType::f32;  ///< of the hidden states
  WireFormat wire = WireFormat::none;
  /// The codes that the experts expect, with the rule and the limits of their scales; codes of `wire` are then made so.
  /// Must satisfy goes_as(wire, codes)
  OperandQuant codes = {};
  bool batched = false;   ///< layout of the experts' rows: see RoutedRows::rows_per_expert
  std::int64_t room = 0;  ///< batched: rows that each expert has room for, others are dropped; 0: room for all
  ExpertOutput expert_output = ExpertOutput::rows;

  bool experts_weight() const noexcept { return expert_output != ExpertOutput::rows; }
  bool experts_sum() const noexcept { return expert_output == ExpertOutput::sums; }
  /// Rows of an expert in the batched layout, where at most `most` can come. 0: standard layout
  std::int64_t rows_per_expert(std::int64_t most) const noexcept { return !batched ? 0 : room > 0 ? room : most; }
};

/// What combine sends home for a token.
enum class CombineForm : std::uint8_t {
  rows,         ///< one row for each of its experts; home sums them, k ascending: same bits as one rank
  partial_sums  ///< from each rank the weighted sum of its experts' rows, in f32: up to K times fewer bytes
};
/// "rows", "partial_sums"
const char* name(CombineForm form) noexcept;
/// all2all_v: rows. all_gather and multicast: partial sums. mc2: partial sums for 16-bit hidden states whose results
/// travel as numbers; rows for f32, where the bits of one rank are promised, and for int8 codes, whose scales belong to
/// rows. If the experts sum, mc2 always sends sums.
CombineForm combine_form(StrategyKind kind, DType hidden_states, WireFormat wire) noexcept;

/// The tokens of one call. All ranks of a tp group bring the same tokens.
struct TokensIn {
  TensorView x;  ///< Shape: [T, H]
  /// Shape: [T, K] i32 or i64, global experts, -1 for none. i64 ids must be ready when `prepare` is called, since it
  /// enqueues a copy of them in i32. make_local takes i32 only
  TensorView ids;
  TensorView weights;       ///< optional, but on all ranks alike. Shape: [T, K] f32; absent: 1
  TensorView fault;         ///< optional in/out. Shape: [4] i32, see fault.hpp
  TensorView x_scale = {};  ///< optional, as weights: x is codes, which travel unchanged. Shape: see RoutedRows
  std::int64_t x_group = 0;
  /// False: each rank of a tp group gets a part of its sums. The parts of the group add up to the result. The group
  /// exchanges nothing to reduce them. Source: reduce_results of vLLM
  bool reduce_results = true;
  /// Tokens of each rank of `ep`, if all ranks have already agreed about them and about everything else they bring.
  /// `prepare` then needs no meeting. Null: `prepare` asks the ranks
  const std::vector<std::int64_t>* tokens_of_ranks = nullptr;
  /// mc2: tokens of a slab, the part of a window that one rank fills. The same on all ranks. 0: tokens of the rank that
  /// brings most
  std::int64_t capacity = 0;
};

/// Most memory that a step needs for given tokens of each rank.
struct StepBytes {
  std::uint64_t workspace = 0;             ///< of the caller, or kept between steps
  std::uint64_t windows = 0;               ///< the strategy's own, which peers reach or read
  std::int64_t source_rows = 0, rows = 0;  ///< as in StepNeeds; upper bounds if routing decides them
};

/// What the caller must provide for a step of T tokens, as far as T decides it.
struct StepNeeds {
  std::uint64_t workspace_bytes = 0;  ///< of the caller; 0: the strategy has memory of its own
  /// For RoutedRows: rows of `x`, and the most rows there can be. Negative: known only after the rows have come.
  std::int64_t source_rows = -1, rows = -1;
  bool in_place = false;  ///< the experts read the caller's tokens in place; needs `rows`
  /// Nothing is enqueued between the sort and the sum. The sum, too, reads the experts' rows in place.
  bool local = false;
  bool fills_sums = true;  ///< `begin_combine` needs `sums`
};

/// One rank's end of a strategy: dispatch and combine, with the memory between them. Every rank calls both halves, with
/// or without tokens. All ranks make all calls in the same order.
///
/// Each half is split into a begin and an end, as prepare_async and finalize_async are: `prepare`, `begin_dispatch`,
/// `hook`, `receive`, then `begin_combine`, `finish_combine`. With an ExpertRank::beside, bytes travel on a queue of
/// their own in between. The rank's stream may meanwhile do work that does not change the tensors of that half: shared
/// experts (which may read x), the experts of another batch, halves of another Strategy. Two micro-batches in flight
/// need two objects. The caller enqueues the sort before the dispatch and the sum after the combine, since other work
/// may go into the same kernels. `dispatch` and `combine` do it for callers without such work.
///
/// Errors, Async, Threads: as Communicator, so a refusal or failure on one rank alone ends the group. all2all_v blocks
/// the host once, in `hook`, to read the split sizes. Lifetime: the object outlives its commands. Source: vLLM's
/// modular kernel; vllm-ascend's token dispatchers and prepare/finalize classes
class Strategy {
 public:
  /// Errors: invalid_argument; unsupported  mc2 or all2all_v with divided experts; codes that `wire` cannot carry
  static void expect_possible(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
  /// Errors: as expect_possible
  static std::unique_ptr<Strategy> make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
  /// For one rank that has every expert: tokens are only sorted, and nothing is exchanged.
  static std::unique_ptr<Strategy> make_local(StreamView stream, std::int32_t experts, const ExpertProblem& problem);
  virtual ~Strategy() = default;

  /// What the next step of so many tokens needs of its caller.
  virtual StepNeeds needs(std::int64_t /*tokens*/) const { return {}; }
  /// Memory of a step with the given tokens of each rank of `ep`; ranks of a tp group have the same number.
  virtual StepBytes bytes(const std::vector<std::int64_t>& tokens) const = 0;
  /// Begins a step: the ranks agree about it. Enqueues only the copy of i64 ids to i32. Weights and i32 ids need not be
  /// ready yet.
  /// @param workspace  At least needs(T).workspace_bytes. The strategy owns it until the sum
  /// @return  The sort of the ids, which the caller enqueues before `begin_dispatch`; none if this strategy needs none
  virtual std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) = 0;
  /// Enqueues what needs no information from other ranks. The tensors must not change until `finish_combine`.
  virtual void begin_dispatch() = 0;
  /// Enqueues the rest. The caller may delay it as long as it likes.
  virtual void hook() {}
  /// Returns the rows for this rank's experts, ordered by expert, source rank, token, k. mc2 over nodes orders them by
  /// expert, index of the source within its node, source node, token, k. The rank's stream waits for the rows.
  virtual RoutedRows receive() = 0;
  /// Enqueues the way back. @param expert_rows  Shape: [R, H] f32, in the order received; from experts that sum [M, H]
  /// f32. Must not change until finish_combine has returned: with an ExpertRank::beside another queue may read it.
  /// @param sums Shape: [T, H] f32 contiguous, for all tokens that were brought; absent unless `fills_sums`
  virtual void begin_combine(TensorView expert_rows, TensorView sums) = 0;
  /// The rank's stream waits for the results that come home.
  /// @return  The sum that remains; the caller sets its `out`. Without slot_rows nothing is left to sum: its rows are
  /// `sums`
  virtual combine::Args finish_combine() = 0;

  /// The whole first half, for a strategy that needs no workspace of its caller.
  RoutedRows dispatch(StreamView stream, const TokensIn& tokens);
  /// The whole second half. @param out  Shape: [T, H] f32 contiguous
  void combine(StreamView stream, TensorView expert_rows, TensorView out);
  /// Device memory held: windows, and memory of steps where the caller gives none. Grows with the tokens seen.
  virtual std::uint64_t workspace_bytes() const noexcept = 0;
};

}  // namespace moecl
