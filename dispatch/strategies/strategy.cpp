#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/strategy.hpp>

#include <algorithm>

#include "dispatch/share.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Ranks in a grid with rows of `width`: the ranks of one column (one in each row), and the ranks of one row.
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

std::int32_t checked_tp(const Communicator& world, std::int32_t tp) {
  require(tp >= 1 && world.size() % tp == 0, "parallel: tp {} does not divide {} ranks", tp, world.size());
  return tp;
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

const char* name(ExpertOutput output) noexcept {
  switch (output) {
    case ExpertOutput::weighted_rows:
      return "weighted_rows";
    case ExpertOutput::sums:
      return "sums";
    case ExpertOutput::rows:
      break;
  }
  return "rows";
}

const char* name(CombineForm form) noexcept { return form == CombineForm::rows ? "rows" : "partial_sums"; }

CombineForm combine_form(StrategyKind kind, DType hidden_states, WireFormat wire) noexcept {
  const bool rows = kind == StrategyKind::mc2 ? hidden_states == DType::f32 || wire == WireFormat::int8
                                              : kind == StrategyKind::all2all_v;
  return rows ? CombineForm::rows : CombineForm::partial_sums;
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
  // A node without experts counts one expert that no token chooses.
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

}  // namespace moecl
