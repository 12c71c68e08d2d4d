#pragma once
// Calls of dispatch and combine by all ranks of a group, and random problems for them.
#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/npu/describe_distribute.hpp"
#include "tests/dispatch/ranks.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/npu_distribute.hpp"

namespace moecl::test {

using Values = std::vector<double>;
using NamedValues = std::map<std::string, Values>;

/// One group of each size, on each kind of group.
class NpuDistributeGroups : public testing::TestWithParam<Setting> {
 protected:
  GroupOfRanks& group(std::int32_t ranks) {
    std::unique_ptr<Ranks>& found = groups_[ranks];
    GroupOptions options;
    options.transport = GetParam().transport;
    if (found == nullptr) found = std::make_unique<Ranks>(ranks, GetParam().places, options);
    return found->group;
  }

 private:
  std::map<std::int32_t, std::unique_ptr<Ranks>> groups_;
};

/// Calls the operator on poisoned outputs and a strict fault word. Errors: the operator's; what the fault word says
template <class Args>
NamedValues call_on(Communicator& world, Args args) {
  const StreamView stream = world.stream();
  infer(args);
  std::vector<Buffer> memory;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    memory.emplace_back(*stream.context, view.size_bytes());
    view.buffer = memory.back().view();
  });
  const Buffer workspace(*stream.context, workspace_bytes(args, *stream.device));
  const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  npu::Call how;
  how.workspace = workspace.view();
  how.tail = npu::Tail::poison;
  how.fault = fault;
  npu::Describe<Args>::run(world, args, how);
  NamedValues outputs;
  npu::for_each_output(args, [&](const char* name, TensorView& view) {
    std::vector<unsigned char> bytes(view.size_bytes());
    read_blocking(stream, view.buffer, bytes.data(), bytes.size());
    outputs[name] = decode(view.dtype, bytes);
  });
  check_fault(stream, fault);
  return outputs;
}

inline Values of(const std::vector<std::int32_t>& values) { return {values.begin(), values.end()}; }
inline Values of(const std::vector<bool>& values) { return {values.begin(), values.end()}; }

/// One random call of both operators.
struct DistributeProblem {
  oracle::DistributeGroup group;
  std::int64_t global_bs = 0, quant_mode = 0, comm_quant_mode = 0, nums_type = 1;
  int mask_rank = 0;            ///< dimensions of the mask; 0: no mask
  std::int32_t per_server = 0;  ///< ranks_per_server of comm_alg hierarchy; 0: fullmesh
  std::int32_t said_rank = -1;  ///< passed instead of the rank, if not negative
  bool smooth = false, shared_x = false, first_version = false, weighted = false;
  std::optional<DType> y_dtype;
  npu::RowCodeType y_codes = npu::RowCodeType::none;
  Values scales, alpha_1, alpha_2, v;
  std::vector<Values> shared_rows;  ///< of each rank, [T, H]

  explicit DistributeProblem(std::uint64_t seed, bool hierarchy = false);
  std::int64_t most_tokens() const {
    std::int64_t most = 0;
    for (const auto& rank : group.ranks) most = std::max(most, rank.tokens);
    return most;
  }
  void draw_codes(std::mt19937_64& engine);
  void draw_rank(std::mt19937_64& engine, std::int64_t tokens);
};

/// Draws the code type of rows, where the quant_mode leaves a choice.
inline void DistributeProblem::draw_codes(std::mt19937_64& engine) {
  const std::int64_t choice = between(engine, 0, 3);
  if (quant_mode >= 2 && choice != 0) y_dtype = choice == 1 ? DType::f8_e4m3 : DType::f8_e5m2;
  if ((quant_mode == 0 && choice == 1) || (quant_mode == 4 && choice == 3)) {
    y_dtype = DType::u8;
    y_codes = quant_mode == 0 ? npu::RowCodeType::hif8 : npu::RowCodeType::e2m1;
  }
}

inline DistributeProblem::DistributeProblem(std::uint64_t seed, bool hierarchy) {
  std::mt19937_64 engine(seed);
  const auto ranks = static_cast<std::int32_t>(between(engine, 1, 8));
  if (hierarchy) {
    do per_server = static_cast<std::int32_t>(between(engine, 1, ranks));
    while (ranks % per_server != 0);
  }
  if (!hierarchy && ranks >= 3 && between(engine, 0, 2) == 0) {
    group.shared = static_cast<std::int32_t>(between(engine, 1, 2));
    group.shared_ranks = group.shared * static_cast<std::int32_t>(between(engine, 1, (ranks - 1) / group.shared));
  }
  group.experts = (ranks - group.shared_ranks) * static_cast<std::int32_t>(between(engine, 1, 3));
  first_version = !hierarchy && between(engine, 0, 3) == 0;
  if (!first_version) {
    mask_rank = static_cast<int>(between(engine, 0, 2));
    if (!hierarchy && between(engine, 0, 2) == 0) {
      group.zero = static_cast<std::int32_t>(between(engine, 0, 2));
      group.copy = static_cast<std::int32_t>(between(engine, 0, 2));
      group.consts = static_cast<std::int32_t>(between(engine, 0, 2));
    }
  }
  const std::int32_t ids = group.experts + group.zero + group.copy + group.consts;
  group.top_k = static_cast<std::int32_t>(between(engine, 1, std::min(ids, 4)));
  group.hidden = 8 * between(engine, 1, 5);
  quant_mode = between(engine, 0, 5);
  static constexpr std::int64_t wires[] = {0, 2, 3, 4};
  comm_quant_mode = wires[between(engine, 0, 3)];
  nums_type = between(engine, 0, 1);
  smooth = quant_mode == 1 || ((quant_mode == 2 || quant_mode == 3) && between(engine, 0, 1) == 1);
  weighted = hierarchy || between(engine, 0, 1) == 1;
  if (!first_version) draw_codes(engine);
  shared_x = between(engine, 0, 2) == 0;
  const std::int64_t same = between(engine, 0, 5);
  const bool uneven = between(engine, 0, 1) == 1;
  for (std::int32_t r = 0; r < ranks; ++r) draw_rank(engine, uneven ? between(engine, 0, 5) : same);
  if (uneven) global_bs = ranks * (most_tokens() + between(engine, most_tokens() == 0 ? 1 : 0, 1));
  const auto random = [&](std::int64_t count) {
    return rounded(DType::bf16, normal(static_cast<std::size_t>(count), engine()));
  };
  scales = random((group.shared + group.experts) * group.hidden);
  alpha_1 = random(group.consts * group.hidden);
  alpha_2 = random(group.consts * group.hidden);
  v = random(group.consts * group.hidden);
  for (const auto& rank : group.ranks) shared_rows.push_back(random(rank.tokens * group.hidden));
}

inline void DistributeProblem::draw_rank(std::mt19937_64& engine, std::int64_t tokens) {
  oracle::DistributeRank rank;
  rank.tokens = tokens;
  const std::int64_t first_inactive = between(engine, 0, tokens);
  const bool skewed = between(engine, 0, 3) == 0;
  std::vector<std::int32_t> all(static_cast<std::size_t>(group.experts + group.zero + group.copy + group.consts));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!skewed) std::shuffle(all.begin(), all.end(), engine);
    bool some = false;
    for (std::int32_t k = 0; k < group.top_k; ++k) {
      rank.ids.push_back(all[static_cast<std::size_t>(k)]);
      rank.pair_active.push_back(mask_rank == 0 || (mask_rank == 1 ? t < first_inactive : between(engine, 0, 2) != 0));
      some |= rank.pair_active.back();
    }
    rank.active.push_back(some);
  }
  rank.x = rounded(DType::bf16, normal(static_cast<std::size_t>(tokens * group.hidden), engine()));
  rank.weights = rounded(DType::f32, normal(static_cast<std::size_t>(tokens * group.top_k), engine()));
  group.ranks.push_back(std::move(rank));
}

inline void set_group(npu::MoeDistributeGroup& args, const DistributeProblem& problem, const Communicator& world) {
  args.ep_world_size = world.size();
  args.ep_rank_id = problem.said_rank < 0 ? world.rank() : problem.said_rank;
  args.moe_expert_num = problem.group.experts;
  args.shared_expert_num = problem.group.shared_ranks == 0 ? 1 : problem.group.shared;
  args.shared_expert_rank_num = problem.group.shared_ranks;
  args.global_bs = problem.global_bs;
}

inline void set_special(npu::MoeDistributeV2& args, const DistributeProblem& problem) {
  args.zero_expert_num = problem.group.zero;
  args.copy_expert_num = problem.group.copy;
  args.const_expert_num = problem.group.consts;
  if (problem.per_server != 0) args.comm_alg = npu::CommAlg::hierarchy;
  const bool all = problem.per_server == problem.group.size();  // as these groups have them
  args.ranks_per_server = all ? 0 : problem.per_server;
}

/// A rank's tensors that both operators take.
struct DistributeInputs {
  DeviceTensor x, ids, weights, mask;

  DistributeInputs(StreamView stream, const DistributeProblem& problem, std::int32_t rank)
      : DistributeInputs(stream, problem, problem.group.ranks[static_cast<std::size_t>(rank)]) {}
  DistributeInputs(StreamView stream, const DistributeProblem& problem, const oracle::DistributeRank& mine)
      : x(stream, DType::bf16, {mine.tokens, problem.group.hidden}, mine.x),
        ids(stream, DType::i32, {mine.tokens, problem.group.top_k}, of(mine.ids)),
        weights(stream, DType::f32, {mine.tokens, problem.group.top_k}, mine.weights),
        mask(problem.mask_rank == 1
                 ? DeviceTensor(stream, DType::i8, {mine.tokens}, of(mine.active))
                 : DeviceTensor(stream, DType::i8, {mine.tokens, problem.group.top_k}, of(mine.pair_active))) {
    mask.view.dtype = DType::boolean;
  }
};

template <class Args>
NamedValues dispatch_on(Communicator& world, const DistributeProblem& problem, const DistributeInputs& in) {
  Args args;
  set_group(args, problem, world);
  args.x = in.x;
  args.expert_ids = in.ids;
  args.quant_mode = problem.quant_mode;
  args.expert_token_nums_type = problem.nums_type;
  const DeviceTensor scales(world.stream(), DType::f32,
                            {problem.group.shared + problem.group.experts, problem.group.hidden}, problem.scales);
  if (problem.smooth) args.scales = scales;
  if constexpr (std::is_base_of_v<npu::MoeDistributeV2, Args>) {
    set_special(args, problem);
    if (problem.mask_rank != 0) args.x_active_mask = in.mask;
    args.y_dtype = problem.y_dtype;
    args.y_codes = problem.y_codes;
  }
  if (problem.weighted) args.expert_scales = in.weights;
  return call_on(world, args);
}

template <class Args>
NamedValues combine_on(Communicator& world, const DistributeProblem& problem, const DistributeInputs& in,
                       const NamedValues& dispatched, const Values& rows) {
  const StreamView stream = world.stream();
  const auto& group = problem.group;
  const auto count = [](const Values& values) { return static_cast<std::int64_t>(values.size()); };
  Args args;
  set_group(args, problem, world);
  const DeviceTensor expand_x(stream, DType::bf16, {count(rows) / group.hidden, group.hidden}, rows),
      counts(stream, DType::i32, {count(dispatched.at("ep_recv_counts"))}, dispatched.at("ep_recv_counts")),
      shared(stream, DType::bf16, {in.x.view.shape[0], group.hidden},
             problem.shared_rows[static_cast<std::size_t>(world.rank())]),
      alpha_1(stream, DType::bf16, {group.consts, group.hidden}, problem.alpha_1),
      alpha_2(stream, DType::bf16, {group.consts, group.hidden}, problem.alpha_2),
      v(stream, DType::bf16, {group.consts, group.hidden}, problem.v);
  args.expand_x = expand_x;
  args.expert_ids = in.ids;
  args.expert_scales = in.weights;
  args.ep_send_counts = counts;
  args.comm_quant_mode = problem.comm_quant_mode;
  if (problem.shared_x) args.shared_expert_x = shared;
  const Values& info = dispatched.at(problem.first_version ? "expand_idx" : "assist_info_for_combine");
  const DeviceTensor device_info(stream, DType::i32, {count(info)}, info);
  const Values row_weights = problem.per_server == 0 ? Values() : dispatched.at("expand_scales");
  const DeviceTensor expand_scales(stream, DType::f32, {count(row_weights)}, row_weights);
  if constexpr (std::is_base_of_v<npu::MoeDistributeV2, Args>) {
    set_special(args, problem);
    args.assist_info_for_combine = device_info;
    if (problem.per_server != 0) args.expand_scales = expand_scales;
    if (problem.mask_rank != 0) args.x_active_mask = in.mask;
    args.ori_x = in.x;
    args.const_expert_alpha_1 = alpha_1;
    args.const_expert_alpha_2 = alpha_2;
    args.const_expert_v = v;
  } else {
    args.expand_idx = device_info;
  }
  return call_on(world, args);
}

}  // namespace moecl::test
