#include <moecl/expert_sort.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/group_list.hpp>
#include <moecl/index_vectors.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {
namespace {

/// A row's expert follows from its (rank, expert) block. A stable sort by expert keeps the order of the ranks.
void compose(Steps& steps, const MoeReRoutingArgs& args) {
  const std::int64_t rows = args.tokens.shape[0];
  const std::int64_t blocks = args.expert_token_num_per_rank.elements();
  const auto experts = static_cast<std::int32_t>(args.expert_token_num.shape[0]);
  group_list::Read read;
  read.list = reshaped(args.expert_token_num_per_rank, {blocks});
  read.kind = group_list::Kind::counts;
  read.rows = rows;
  read.all_rows = true;
  read.row_ends = steps.scratch(DType::i32, {blocks});
  read.fault = steps.fault();
  steps.run(read);

  const TensorView ids = steps.scratch(DType::i32, {rows});
  steps.run(index_vectors::GroupOfRow{read.row_ends, experts, ids});

  const bool wide = args.expert_token_num.dtype == DType::i64;
  expert_sort::Args sort;
  sort.ids = reshaped(ids, {rows, 1});
  sort.end_expert = sort.total_experts = experts;
  sort.row_ends = steps.scratch(DType::i32, {experts});
  sort.counts = wide ? steps.scratch(DType::i32, {experts}) : args.expert_token_num;
  sort.sorted_slots = args.permute_token_idx;
  sort.scratch = steps.scratch_bytes(expert_sort::scratch_bytes(rows, experts, steps.caps()));
  steps.run(sort);
  if (wide) steps.run(group_list::Write{{}, sort.counts, group_list::Kind::counts, 0, args.expert_token_num});

  move_rows(steps, {args.tokens, args.permute_token_idx, 1, sort.row_ends, 0, {}, {}}, args.permute_tokens);
  if (!args.per_token_scales.present()) return;
  steps.run(gather_rows::Args{reshaped(args.per_token_scales, {rows, 1}), args.permute_token_idx, 1, sort.row_ends, 0,
                              reshaped(args.permute_per_token_scales, {rows, 1})});
}

}  // namespace

void infer(MoeReRoutingArgs& args) {
  if (args.expert_token_num_type != 1)
    fail(ErrorCode::unsupported, "expert_token_num_type: {} is not offered, only 1", args.expert_token_num_type);
  if (args.idx_type != 0) fail(ErrorCode::unsupported, "idx_type: {} is not offered, only 0", args.idx_type);
  require(args.tokens.rank == 2 && is_movable(args.tokens.dtype),
          "tokens: expected f32, f16, bf16, i8 or u8 [A, H], got {}", args.tokens);
  const TensorView& counts = args.expert_token_num_per_rank;
  require(counts.rank == 2 && counts.elements() > 0 && (counts.dtype == DType::i32 || counts.dtype == DType::i64),
          "expert_token_num_per_rank: expected i32 or i64 [R, E], got {}", counts);
  const std::int64_t rows = args.tokens.shape[0];
  set_shape(args.permute_tokens, args.tokens.dtype, shape_of(args.tokens));
  args.permute_per_token_scales.rank = 0;
  if (args.per_token_scales.present()) {
    expect_tensor(args.per_token_scales, "per_token_scales", DType::f32, {rows});
    set_shape(args.permute_per_token_scales, DType::f32, {rows});
  }
  set_shape(args.permute_token_idx, DType::i32, {rows});
  set_shape(args.expert_token_num, counts.dtype, {counts.shape[1]});
}

std::uint64_t workspace_bytes(const MoeReRoutingArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const MoeReRoutingArgs& args) {
  return {2 * (args.tokens.size_bytes() + args.per_token_scales.size_bytes()) + args.permute_token_idx.size_bytes() +
              args.expert_token_num_per_rank.size_bytes() + args.expert_token_num.size_bytes(),
          0};
}

void moe_re_routing(StreamView stream, const MoeReRoutingArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
