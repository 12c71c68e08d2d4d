#include <moecl/index_vectors.hpp>
#include <moecl/stable_sort.hpp>

#include <algorithm>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"
#include "host/npu/row_codes.hpp"

namespace moecl::npu {
namespace {

constexpr std::int64_t most_experts_per_token = 512;

std::int64_t top_k(const MoeTokenPermuteArgs& args) { return args.indices.rank == 2 ? args.indices.shape[1] : 1; }

void compose(Steps& steps, const MoeTokenPermuteArgs& args) {
  if (steps.strict())
    require(top_k(args) <= most_experts_per_token, "indices: {} a token, at most {} are possible", top_k(args),
            most_experts_per_token);
  const std::int64_t slots = args.indices.elements(), rows = args.permuted_tokens.shape[0];
  stable_sort::Args sort;
  sort.keys = reshaped(args.indices, {slots});
  if (args.indices.dtype == DType::i64) {
    index_vectors::Narrow narrow;
    narrow.from = args.indices;
    narrow.high = 1 << index_bits;
    narrow.otherwise = narrow.high - 1;
    narrow.to = sort.keys = steps.scratch(DType::i32, {slots});
    narrow.fault = steps.fault();
    steps.run(narrow);
  }
  sort.key_bits = index_bits;
  sort.sorted_slots = steps.scratch(DType::i32, {slots});
  sort.slot_rows = args.sorted_indices;
  sort.fault = steps.fault();
  sort.scratch = steps.scratch_bytes(stable_sort::scratch_bytes(slots, index_bits, steps.caps()));
  steps.run(sort);

  MovedRows moved;
  moved.x = args.tokens;
  moved.index = sort.sorted_slots.rows(0, rows);
  moved.divisor = static_cast<std::int32_t>(std::max<std::int64_t>(top_k(args), 1));
  move_rows(steps, moved, args.permuted_tokens);
}

}  // namespace

void infer(MoeTokenPermuteArgs& args) {
  if (args.padded_mode) fail(ErrorCode::unsupported, "padded_mode: true is not offered");
  require(args.tokens.rank == 2 && is_movable(args.tokens.dtype),
          "tokens: expected f32, f16, bf16, i8 or u8 [N, H], got {}", args.tokens);
  const std::int64_t tokens = args.tokens.shape[0];
  require((args.indices.rank == 1 || args.indices.rank == 2) && args.indices.shape[0] == tokens &&
              (args.indices.dtype == DType::i32 || args.indices.dtype == DType::i64),
          "indices: expected i32 or i64 [{}] or [{}, K], got {}", tokens, tokens, args.indices);
  const std::int64_t slots = args.indices.elements(), asked = args.num_out_tokens.value_or(0);
  const std::int64_t rows = asked > 0 ? std::min(asked, slots) : slots + std::max(asked, -slots);
  set_shape(args.permuted_tokens, args.tokens.dtype, {rows, args.tokens.shape[1]});
  set_shape(args.sorted_indices, DType::i32, {slots});
}

std::uint64_t workspace_bytes(const MoeTokenPermuteArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const MoeTokenPermuteArgs& args) {
  return {2 * args.permuted_tokens.size_bytes() + args.indices.size_bytes() + args.sorted_indices.size_bytes(), 0};
}

void moe_token_permute(StreamView stream, const MoeTokenPermuteArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
