#include <moecl/combine.hpp>
#include <moecl/scatter_add.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"

namespace moecl::npu {
namespace {

void compose(Steps& steps, const MoeTokenUnpermuteArgs& args) {
  const std::int64_t rows = args.permuted_tokens.shape[0], tokens = args.unpermuted_tokens.shape[0];
  if (!args.padded_mode) {
    combine::Args combine;
    combine.rows = args.permuted_tokens;
    combine.slot_rows = args.sorted_indices;
    combine.weights = args.probs;
    combine.skip_zero_weights = true;
    combine.out = args.unpermuted_tokens;
    return steps.run(combine);
  }
  scatter_add::Args scatter;
  scatter.rows = args.permuted_tokens;
  scatter.destinations = args.sorted_indices;
  if (args.probs.present()) scatter.weights = reshaped(args.probs, {rows});
  scatter.out = args.unpermuted_tokens;
  scatter.fault = steps.fault();
  scatter.scratch = steps.scratch_bytes(scatter_add::scratch_bytes(rows, tokens, steps.caps()));
  steps.run(scatter);
}

}  // namespace

void infer(MoeTokenUnpermuteArgs& args) {
  require(args.permuted_tokens.rank == 2 && is_activation_dtype(args.permuted_tokens.dtype),
          "permuted_tokens: expected f32, f16 or bf16 [R, H], got {}", args.permuted_tokens);
  const std::int64_t rows = args.permuted_tokens.shape[0], hidden = args.permuted_tokens.shape[1];
  expect_tensor(args.sorted_indices, "sorted_indices", DType::i32, {-1});
  const std::int64_t slots = args.sorted_indices.shape[0];
  require(!args.probs.present() || is_activation_dtype(args.probs.dtype), "probs: expected f32, f16 or bf16, got {}",
          args.probs);
  std::int64_t tokens = slots;
  if (args.padded_mode) {
    require(args.restore_shape.size() == 2 && args.restore_shape[0] >= 0 && args.restore_shape[1] == hidden,
            "restore_shape: padded_mode needs [N, {}], got {} numbers", hidden, args.restore_shape.size());
    require(slots == rows, "sorted_indices: padded_mode needs one for each of {} rows, got {}", rows, slots);
    require(!args.probs.present() || args.probs.elements() == rows, "probs: padded_mode needs {} of them, got {}", rows,
            args.probs);
    tokens = args.restore_shape[0];
  } else if (args.probs.present()) {
    require(args.probs.rank == 2 && args.probs.elements() == slots,
            "probs: expected [N, K] for {} sorted_indices, got {}", slots, args.probs);
    tokens = args.probs.shape[0];
  }
  set_shape(args.unpermuted_tokens, args.permuted_tokens.dtype, {tokens, hidden});
}

std::uint64_t workspace_bytes(const MoeTokenUnpermuteArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const MoeTokenUnpermuteArgs& args) {
  const auto read = static_cast<std::uint64_t>(args.sorted_indices.shape[0] * args.permuted_tokens.shape[1]);
  return {read * size_bytes(args.permuted_tokens.dtype) + args.sorted_indices.size_bytes() + args.probs.size_bytes() +
              args.unpermuted_tokens.size_bytes(),
          2 * read};
}

void moe_token_unpermute(StreamView stream, const MoeTokenUnpermuteArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
