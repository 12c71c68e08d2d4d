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
  mc2,         ///< windows of fixed capacity; the host never learns a count; over nodes in two levels
  all_gather,  ///< every rank gets all tokens of the dp ranks; partial sums are reduced and scattered
  all2all_v,   ///< exactly the rows that each rank needs; one host read of the split sizes
  multicast    ///< as all_gather, by broadcasts at cumulative offsets and one all-reduce
};
/// "mc2"
const char* name(StrategyKind kind) noexcept;

/// What the ranks of a grid divide among themselves: never both, as in vLLM's FusedMoEParallelConfig.
enum class ExpertSharding : std::uint8_t {
  experts,      ///< expert-parallel: each rank has some experts, whole
  intermediate  ///< tensor-parallel: each rank has a part of every expert's intermediate size; needs every token
};
/// "experts", "intermediate"
const char* name(ExpertSharding sharding) noexcept;

/// One rank of a layer over a dp x tp grid: its place there, its experts and its peers.
struct ExpertRank {
  /// @param world  All ranks of the grid; rank = dp_rank * tp + tp_rank. @param tp  Divides the world's size
  /// @param ranks_per_node  Neighbours that reach each other faster than others; divides the world's size. 0: all
  /// Errors: invalid_argument
  ExpertRank(const Communicator& world, std::int32_t tp, std::int32_t experts,
             ExpertSharding sharding = ExpertSharding::experts, std::int32_t ranks_per_node = 0);
  /// The same rank among those of its node alone, with the node's experts. Tokens are its own.
  ExpertRank of_node() const;

  /// The same rank, whose exchanges run on a queue of their own: see Communicator::beside.
  ExpertRank beside() const;
  /// The same rank where every rank, also of a tp group, brings tokens of its own.
  ExpertRank with_own_tokens() const;

  Communicator ep;     ///< everyone, who together have all experts
  Communicator dp;     ///< those with other tokens at this tp rank
  Communicator tp;     ///< those with the same tokens
  Communicator node;   ///< those of this node
  Communicator peers;  ///< those with this rank's index, one on each node
  ExpertSharding sharding;
  std::int32_t ep_first_expert = 0, experts;  ///< of the ranks of `ep` together
  std::int32_t first_expert, local_experts;   ///< a linear run of those
};

/// The same for every rank of a layer; disagreement is an error on all of them.
struct ExpertProblem {
  std::int64_t hidden = 0;
  std::int32_t top_k = 0;
  DType dtype = DType::f32;  ///< of the hidden states
  WireFormat wire = WireFormat::none;
  /// What the experts want of codes, which those of `wire` are then: their rule and limits. Range: see goes_as
  OperandQuant codes = {};
  bool batched = false;   ///< layout of the rows for the experts: RoutedRows::rows_per_expert
  std::int64_t room = 0;  ///< batched: rows that each expert has room for, others are dropped; 0: as many as can come
  ExpertOutput expert_output = ExpertOutput::rows;

  bool experts_weight() const noexcept { return expert_output != ExpertOutput::rows; }
  bool experts_sum() const noexcept { return expert_output == ExpertOutput::sums; }
  /// Of at most so many rows for an expert. 0: standard layout
  std::int64_t rows_per_expert(std::int64_t most) const noexcept { return !batched ? 0 : room > 0 ? room : most; }
};

/// What combine brings home of a token.
enum class CombineForm : std::uint8_t {
  rows,         ///< the row of each of its experts, which are summed at home, k ascending: the bits of one rank
  partial_sums  ///< from each rank the weighted sum of its experts' rows, in f32: up to K times less
};
/// "rows", "partial_sums"
const char* name(CombineForm form) noexcept;
/// all2all_v: rows; all_gather, multicast: sums. mc2: sums of hidden states of 16 bits whose results travel as numbers;
/// rows in f32, where the bits of one rank are promised, and as int8 codes, whose scales are those of rows; of experts
/// who sum it has sums alone.
CombineForm combine_form(StrategyKind kind, DType hidden_states, WireFormat wire) noexcept;

/// The tokens of one call. Ranks of one tp group bring the same ones.
struct TokensIn {
  TensorView x;  ///< Shape: [T, H]
  /// Shape: [T, K] i32 or i64, global experts, -1 for none. Of i64 the caller's `prepare` enqueues a copy in i32,
  /// so they must be there by then; not of make_local
  TensorView ids;
  TensorView weights;       ///< optional, on every rank or on none. Shape: [T, K] f32; absent: 1
  TensorView fault;         ///< optional in/out. Shape: [4] i32, see fault.hpp
  TensorView x_scale = {};  ///< optional, as weights: `x` is codes, which travel as they are. Shape: see RoutedRows
  std::int64_t x_group = 0;
  /// False: the ranks of a tp group get parts whose sum is what each would get; nothing travels within the group for
  /// it. Source: reduce_results of vLLM
  bool reduce_results = true;
  /// Tokens of each rank of `ep`, where all ranks have agreed about them and about everything else that they bring:
  /// then `prepare` meets nobody. Null: it asks
  const std::vector<std::int64_t>* tokens_of_ranks = nullptr;
  /// Tokens of a rank's slab in windows of mc2, on every rank alike; 0: as many as the rank that has most brings
  std::int64_t capacity = 0;
};

/// What a step takes at most where the ranks bring so many tokens.
struct StepBytes {
  std::uint64_t workspace = 0;             ///< of its caller's, or kept from step to step
  std::uint64_t windows = 0;               ///< of the strategy's own, which peers reach or read
  std::int64_t source_rows = 0, rows = 0;  ///< as in StepNeeds; the most, where they depend on the routing
};

/// What a step of T tokens takes of its caller, as far as T decides it.
struct StepNeeds {
  std::uint64_t workspace_bytes = 0;  ///< of the caller's; 0: the strategy has memory of its own
  /// Of RoutedRows: rows of `x`, and the most rows there can be. Negative: known when rows have come.
  std::int64_t source_rows = -1, rows = -1;
  bool in_place = false;  ///< the experts read the tokens where they were brought; needs `rows`
  /// Nothing is enqueued between the sort and the sum: the sum reads the experts' rows where they are, too.
  bool local = false;
  bool fills_sums = true;  ///< `begin_combine` needs `sums`
};

/// One strategy of one rank: both halves, with the memory that goes between them. Every rank calls both halves of the
/// same call, with or without tokens, and all ranks call everything in the same order.
///
/// A half is begun and received, as prepare_async and finalize_async are: `prepare`, `begin_dispatch`, `hook`,
/// `receive`, then `begin_combine`, `finish_combine`. With an ExpertRank::beside bytes travel on a queue of their own
/// meanwhile, and the rank's stream is free for whatever leaves the tensors of the half under way as they are: shared
/// experts (which may read x), the experts of another batch, halves of another Strategy. Two micro-batches in flight
/// need two objects. The sort before the dispatch and the sum after the combine are the caller's to enqueue, since
/// other work may go into the same kernels; `dispatch` and `combine` do it for those who have none.
///
/// Errors, Async, Threads: as Communicator, so what one rank alone is refused or fails at ends the group; all2all_v
/// stops the host once, in `hook`, to read the split sizes. Lifetime: outlives its commands. Source: vLLM's modular
/// kernel; vllm-ascend's token dispatchers and prepare/finalize classes
class Strategy {
 public:
  /// Errors: invalid_argument; unsupported  mc2 or all2all_v where experts are not whole; codes that `wire` has not
  static void expect_possible(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
  /// Errors: as expect_possible
  static std::unique_ptr<Strategy> make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
  /// Of one rank that has every expert: tokens are only sorted, and nothing is exchanged.
  static std::unique_ptr<Strategy> make_local(StreamView stream, std::int32_t experts, const ExpertProblem& problem);
  virtual ~Strategy() = default;

  /// What the next step of so many tokens takes.
  virtual StepNeeds needs(std::int64_t /*tokens*/) const { return {}; }
  /// What it takes where the ranks have so many: of each rank of `ep`, those of a tp group the same.
  virtual StepBytes bytes(const std::vector<std::int64_t>& tokens) const = 0;
  /// Begins a step: ranks agree about it. Enqueues nothing but ids of 64 bits in 32; weights, and ids of 32, need not
  /// be known yet.
  /// @param workspace  At least needs(T).workspace_bytes, the strategy's until the sum
  /// @return  The sort of the tokens' ids that `begin_dispatch` expects to have been enqueued; none where that has none
  virtual std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) = 0;
  /// Launches what can be before this rank learns anything from others. Until `finish_combine` the tensors must stay as
  /// they are.
  virtual void begin_dispatch() = 0;
  /// Launches the rest, as late as the caller likes.
  virtual void hook() {}
  /// The rows for this rank's experts, in the order expert, source rank, token, k; mc2 over nodes: expert, index of the
  /// source within its node, source node, token, k. The rank's stream waits for them.
  virtual RoutedRows receive() = 0;
  /// Launches the way back. @param expert_rows  Shape: [R, H] f32, as received, or the [M, H] f32 of experts who sum.
  /// It stays until finish_combine has returned: with an ExpertRank::beside another queue may read it. @param sums
  /// Shape: [T, H] f32 contiguous, for all tokens that were brought; absent unless `fills_sums`
  virtual void begin_combine(TensorView expert_rows, TensorView sums) = 0;
  /// The rank's stream waits for what comes home.
  /// @return  The sum that is left, whose `out` the caller chooses; without slot_rows its rows are the `sums`
  virtual combine::Args finish_combine() = 0;

  /// The whole first half, of a strategy that takes no workspace of its caller.
  RoutedRows dispatch(StreamView stream, const TokensIn& tokens);
  /// The whole second half. @param out  Shape: [T, H] f32 contiguous
  void combine(StreamView stream, TensorView expert_rows, TensorView out);
  /// Device memory held: windows, and what steps take where nobody gives it; grows with the tokens seen.
  virtual std::uint64_t workspace_bytes() const noexcept = 0;
};

}  // namespace moecl
