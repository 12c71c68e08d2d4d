#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/strategy.hpp>

#include <algorithm>

#include "dispatch/strategy_parts.hpp"

namespace moecl {
namespace {

/// Of ranks counted in rows of `width`: one of each row, and all of one.
std::vector<std::int32_t> column_of(std::int32_t world, std::int32_t width, std::int32_t column) {
  std::vector<std::int32_t> members;
  for (std::int32_t rank = column; rank < world; rank += width) members.push_back(rank);
  return members;
}

std::vector<std::int32_t> row_of(std::int32_t width, std::int32_t row) {
  std::vector<std::int32_t> members;
  for (std::int32_t column = 0; column < width; ++column) members.push_back(row * width + column);
  return members;
}

/// By what codes of one type may differ.
std::vector<double> scales_of(const OperandQuant& codes) {
  return {codes.quantized() ? 1.0 : 0.0, static_cast<double>(codes.rounding), codes.most_amax, codes.least_scale};
}

std::int32_t checked_tp(const Communicator& world, std::int32_t tp) {
  require(tp >= 1 && world.size() % tp == 0, "parallel: tp {} does not divide {} ranks", tp, world.size());
  return tp;
}

/// A strategy whose failures on one rank alone, before a meeting too, end the group.
class Together final : public Strategy {
 public:
  Together(const Communicator& ranks, std::unique_ptr<Strategy> strategy)
      : ranks_(ranks), strategy_(std::move(strategy)) {}

  StepNeeds needs(std::int64_t tokens) const override { return strategy_->needs(tokens); }
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override {
    return ranks_.together([&] { return strategy_->prepare(tokens, workspace); });
  }
  void begin_dispatch() override {
    ranks_.together([&] { strategy_->begin_dispatch(); });
  }
  void hook() override {
    ranks_.together([&] { strategy_->hook(); });
  }
  RoutedRows receive() override {
    return ranks_.together([&] { return strategy_->receive(); });
  }
  void begin_combine(TensorView expert_rows, TensorView sums) override {
    ranks_.together([&] { strategy_->begin_combine(expert_rows, sums); });
  }
  combine::Args finish_combine() override {
    return ranks_.together([&] { return strategy_->finish_combine(); });
  }
  std::uint64_t workspace_bytes() const noexcept override { return strategy_->workspace_bytes(); }

 private:
  Communicator ranks_;
  std::unique_ptr<Strategy> strategy_;
};

std::unique_ptr<Strategy> make_alone(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  switch (kind) {
    case StrategyKind::mc2:
      return rank.peers.size() == 1 ? make_mc2(rank, problem) : make_mc2_over_nodes(rank, problem);
    case StrategyKind::all2all_v:
      return make_all2all_v(rank, problem);
    default:
      return make_all_gather(rank, problem, kind == StrategyKind::multicast);
  }
}

std::int32_t checked_node(const Communicator& world, std::int32_t ranks_per_node) {
  require(ranks_per_node >= 0 && (ranks_per_node == 0 || world.size() % ranks_per_node == 0),
          "parallel: nodes of {} ranks do not divide {} ranks", ranks_per_node, world.size());
  return ranks_per_node == 0 ? world.size() : ranks_per_node;
}

}  // namespace

const char* name(StrategyKind kind) noexcept {
  switch (kind) {
    case StrategyKind::mc2:
      return "mc2";
    case StrategyKind::all_gather:
      return "allgather";
    case StrategyKind::all2all_v:
      return "all2allv";
    case StrategyKind::multicast:
      break;
  }
  return "multicast";
}

const char* name(ExpertSharding sharding) noexcept {
  return sharding == ExpertSharding::experts ? "experts" : "intermediate";
}

const char* name(WayHome way) noexcept { return way == WayHome::rows ? "rows" : "sums"; }

WayHome way_home(StrategyKind kind, DType hidden_states, WireFormat wire) noexcept {
  const bool rows = kind == StrategyKind::mc2 ? hidden_states == DType::f32 || wire == WireFormat::int8
                                              : kind == StrategyKind::all2all_v;
  return rows ? WayHome::rows : WayHome::sums;
}

ExpertRank::ExpertRank(const Communicator& world, std::int32_t tp_size, std::int32_t expert_count,
                       ExpertSharding shard_by, std::int32_t ranks_per_node)
    : ep(world),
      dp(world.part(column_of(world.size(), checked_tp(world, tp_size), world.rank() % checked_tp(world, tp_size)))),
      tp(world.part(row_of(tp_size, world.rank() / tp_size))),
      node(world.part(row_of(checked_node(world, ranks_per_node), world.rank() / checked_node(world, ranks_per_node)))),
      peers(world.part(column_of(world.size(), node.size(), node.rank()))),
      sharding(shard_by),
      experts(expert_count),
      first_expert(0),
      local_experts(expert_count) {
  if (sharding == ExpertSharding::intermediate) return;
  const ExpertMap map = ExpertMap::make(experts, world.size(), world.rank(), ExpertPlacement::linear);
  local_experts = static_cast<std::int32_t>(map.global_of.size());
  first_expert = map.global_of.empty() ? 0 : map.global_of.front();
}

ExpertRank ExpertRank::beside() const {
  ExpertRank other = *this;
  other.ep = ep.beside();
  other.dp = other.ep.part(column_of(ep.size(), tp.size(), tp.rank()));
  other.tp = other.ep.part(row_of(tp.size(), dp.rank()));
  other.node = other.ep.part(row_of(node.size(), peers.rank()));
  other.peers = other.ep.part(column_of(ep.size(), node.size(), node.rank()));
  return other;
}

ExpertRank ExpertRank::with_own_tokens() const {
  ExpertRank other = *this;
  other.dp = ep;
  other.tp = ep.part({ep.rank()});
  return other;
}

ExpertRank ExpertRank::of_node() const {
  const std::int32_t first_rank = ep.rank() - node.rank();
  const Share first = share_of(experts, ep.size(), first_rank),
              last = share_of(experts, ep.size(), first_rank + node.size() - 1);
  ExpertRank alone = *this;
  alone.ep = alone.dp = node;
  alone.tp = alone.peers = node.part({node.rank()});
  alone.ep_first_expert = static_cast<std::int32_t>(first.begin);
  // A node without experts counts one that nobody chooses.
  alone.experts = static_cast<std::int32_t>(std::max<std::int64_t>(last.begin + last.count - first.begin, 1));
  return alone;
}

RoutedRows Strategy::dispatch(StreamView stream, const TokensIn& tokens) {
  if (const auto sort = prepare(tokens, {})) expert_sort::enqueue(stream, *sort);
  begin_dispatch();
  hook();
  return receive();
}

void Strategy::combine(StreamView stream, TensorView expert_rows, TensorView out) {
  begin_combine(expert_rows, out);
  combine::Args sum = finish_combine();
  if (!sum.slot_rows.present()) return;
  sum.out = out;
  combine::enqueue(stream, sum);
}

void Strategy::expect_possible(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  require(
      problem.hidden >= 1 && problem.top_k >= 1 && problem.top_k <= rank.experts && is_activation_dtype(problem.dtype),
      "strategy: hidden {}, top_k {} of {} experts, dtype {}", problem.hidden, problem.top_k, rank.experts,
      name(problem.dtype));
  require(problem.wire != WireFormat::int8 || kind != StrategyKind::mc2 || problem.hidden % 8 == 0,
          "strategy mc2: wire {} groups columns by 8, hidden is {}", name(problem.wire), problem.hidden);
  if (problem.wire != WireFormat::none && problem.codes.quantized() && !goes_as(problem.wire, problem.codes))
    fail(ErrorCode::unsupported, "strategy: rows that travel as {} codes cannot be quantized again, as {}",
         name(problem.wire), describe(problem.codes));
  if (rank.sharding == ExpertSharding::intermediate && (kind == StrategyKind::mc2 || kind == StrategyKind::all2all_v))
    fail(ErrorCode::unsupported,
         "strategy {}: sends tokens to whole experts; where each rank has a part of every "
         "expert, all need all tokens: allgather or multicast",
         name(kind));
}

std::unique_ptr<Strategy> Strategy::make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  Communicator ranks = rank.ep;
  return ranks.together([&] {
    expect_possible(kind, rank, problem);
    return std::make_unique<Together>(ranks, make_alone(kind, rank, problem));
  });
}

std::vector<std::int64_t> agree_on_tokens(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                          const TokensIn& tokens) {
  Communicator ep = rank.ep;
  const auto all = ep.share("dispatch", {tokens.x.shape[0]},
                            {{"strategy", kind},
                             {"hidden", problem.hidden},
                             {"top_k", problem.top_k},
                             {"dtype", problem.dtype},
                             {"wire", problem.wire},
                             {"scales of codes", scales_of(problem.codes)},
                             {"experts", rank.experts},
                             {"sharding", rank.sharding},
                             {"ranks of a tp group", rank.tp.size()},
                             {"ranks of a node", rank.node.size()},
                             {"weights", tokens.weights.present()},
                             {"x", tokens.x.dtype},
                             {"x_scale", tokens.x_scale.present()},
                             {"type of x_scale", tokens.x_scale.dtype},
                             {"x_group", tokens.x_group}});
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t first = r / static_cast<std::size_t>(rank.tp.size()) * static_cast<std::size_t>(rank.tp.size());
    require(all[r][0] == all[first][0], "dispatch: ranks {} and {} are one tp group but have {} and {} tokens", first,
            r, all[first][0], all[r][0]);
    counts.push_back(all[r][0]);
  }
  return counts;
}

SortLayout::SortLayout(WorkspaceLayout& workspace, std::int64_t slot_count, std::int32_t expert_count,
                       const DeviceCaps& caps, std::int64_t batched_rows)
    : slots(slot_count),
      experts(expert_count),
      rows_per_expert(batched_rows),
      row_ends_(workspace.add(bytes_of(DType::i32, experts))),
      sorted_slots_(workspace.add(bytes_of(DType::i32, rows()))),
      slot_rows_(workspace.add(bytes_of(DType::i32, slots))),
      scratch_(workspace.total_bytes()),
      scratch_bytes_(expert_sort::scratch_bytes(slots, experts, caps)) {
  workspace.add(scratch_bytes_);
}

expert_sort::Args SortLayout::in(BufferView memory, TensorView ids, std::int32_t first, std::int32_t total,
                                 TensorView fault) const {
  expert_sort::Args sort;
  sort.ids = ids;
  sort.first_expert = first;
  sort.end_expert = first + experts;
  sort.total_experts = total;
  sort.rows_per_expert = rows_per_expert;
  sort.row_ends = tensor_at(memory, row_ends_, DType::i32, experts);
  sort.sorted_slots = tensor_at(memory, sorted_slots_, DType::i32, rows());
  sort.slot_rows = tensor_at(memory, slot_rows_, DType::i32, slots);
  sort.fault = fault;
  sort.scratch = memory.slice(scratch_, scratch_bytes_);
  return sort;
}

RoutedRows rows_in_order(StreamView stream, const WireRows& rows, const expert_sort::Args& sort, std::int32_t divisor,
                         const BatchedLayout& batched, BufferView memory) {
  RoutedRows routed;
  routed.row_ends = sort.row_ends;
  routed.rows = sort.sorted_slots.shape[0];
  routed.rows_per_expert = sort.rows_per_expert;
  WireRows in_order = rows;
  if (batched.rows) {
    in_order = batched.rows->in(memory);
    gather(stream, rows, sort.sorted_slots, divisor, sort.row_ends, sort.rows_per_expert, in_order);
  } else {  // the first product gathers its rows itself
    routed.index = sort.sorted_slots;
    routed.index_divisor = divisor;
  }
  routed.x = in_order.codes;
  routed.x_scale = in_order.scale;
  routed.x_group = in_order.group;
  return routed;
}

combine::Args combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                           TensorView share, TensorView sums) {
  combine::Args sum;
  sum.rows = rows.codes;
  sum.rows_scale = rows.scale;
  sum.slot_rows = slot_rows;
  sum.weights = weights;
  if (rank.tp.size() == 1) return sum;
  sum.out = share;
  combine::enqueue(rank.ep.rank_stream(), sum);
  // Every tp rank's share of the tokens, back to all of them.
  Communicator tp = rank.tp;
  std::vector<std::uint64_t> bytes;
  for (std::int32_t r = 0; r < tp.size(); ++r)
    bytes.push_back(bytes_of(sums.dtype, share_of(sums.shape[0], tp.size(), r).count, sums.shape[1]));
  tp.fork();
  tp.all_gather_v(share.buffer.slice(0, share.size_bytes()), sums.buffer.slice(0, sums.size_bytes()), bytes);
  tp.join();
  return sums_alone(sums);
}

}  // namespace moecl
