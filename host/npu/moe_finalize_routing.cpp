#include <moecl/combine.hpp>
#include <moecl/index_vectors.hpp>

#include <algorithm>
#include <limits>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"

namespace moecl::npu {
namespace {

bool drops(const MoeFinalizeRoutingArgs& args) { return args.drop_pad_mode % 2 == 1; }
bool columns(const MoeFinalizeRoutingArgs& args) { return args.drop_pad_mode < 2; }

/// Reports indices outside [low, high): the NPU would read past its tensors there; `combine` leaves them out.
void check_indices(Steps& steps, const TensorView& indices, std::int64_t low, std::int64_t high) {
  if (!steps.strict()) return;
  index_vectors::Narrow narrow;
  narrow.from = indices;
  narrow.low = static_cast<std::int32_t>(low);
  narrow.high = static_cast<std::int32_t>(std::min<std::int64_t>(high, std::numeric_limits<std::int32_t>::max()));
  narrow.to = steps.scratch(DType::i32, {indices.elements()});
  narrow.fault = steps.fault();
  if (narrow.fault.present()) steps.run(narrow);
}

void compose(Steps& steps, const MoeFinalizeRoutingArgs& args) {
  const TensorView rows = as_rows(args.expanded_permuted_rows);
  check_indices(steps, args.expanded_src_to_dst_row, drops(args) ? -1 : 0, rows.shape[0]);
  combine::Args combine;
  combine.rows = rows;
  combine.slot_rows = args.expanded_src_to_dst_row;
  combine.column_slots = columns(args);
  combine.weights = args.scales;
  if (args.bias.present()) {
    check_indices(steps, args.export_for_source_row, 0, args.bias.shape[0]);
    combine.bias = args.bias;
    combine.bias_ids = args.export_for_source_row;
  }
  combine.shared = args.skip1;
  combine.residual = args.skip2;
  combine.out = args.out;
  steps.run(combine);
}

void expect_like(const char* name, const TensorView& view, DType dtype, std::int64_t rows, std::int64_t hidden) {
  if (view.present()) expect_tensor(view, name, dtype, {rows, hidden});
}

}  // namespace

void infer(MoeFinalizeRoutingArgs& args) {
  require(args.drop_pad_mode >= 0 && args.drop_pad_mode <= 3, "drop_pad_mode: {} is outside [0, 3]",
          args.drop_pad_mode);
  const TensorView& rows = args.expanded_permuted_rows;
  require(is_activation_dtype(rows.dtype) && (rows.rank == 2 || (rows.rank == 3 && drops(args))),
          "expanded_permuted_rows: expected f32, f16 or bf16 {}, got {}", drops(args) ? "[E, C, H]" : "[R, H]", rows);
  const std::int64_t hidden = rows.shape[rows.rank - 1];
  expect_tensor(args.expanded_src_to_dst_row, "expanded_src_to_dst_row", DType::i32, {-1});
  const std::int64_t slots = args.expanded_src_to_dst_row.shape[0];
  const TensorView& scales = args.scales;
  require(!scales.present() || (scales.rank == 2 && is_activation_dtype(scales.dtype) && scales.elements() == slots),
          "scales: expected float [N, K] for {} rows of tokens, got {}", slots, scales);
  const std::int64_t tokens = scales.present() ? scales.shape[0] : slots;
  require(!args.skip2.present() || args.skip1.present(), "skip2: needs skip1");
  expect_like("skip1", args.skip1, rows.dtype, tokens, hidden);
  expect_like("skip2", args.skip2, rows.dtype, tokens, hidden);
  expect_like("bias", args.bias, rows.dtype, -1, hidden);
  if (args.bias.present())
    expect_tensor(args.export_for_source_row, "export_for_source_row", DType::i32,
                  {tokens, scales.present() ? scales.shape[1] : 1});
  set_shape(args.out, rows.dtype, {tokens, hidden});
}

std::uint64_t workspace_bytes(const MoeFinalizeRoutingArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const MoeFinalizeRoutingArgs& args) {
  const auto read = static_cast<std::uint64_t>(args.expanded_src_to_dst_row.shape[0] * args.out.shape[1]);
  return {read * size_bytes(args.expanded_permuted_rows.dtype) + args.skip1.size_bytes() + args.skip2.size_bytes() +
              args.bias.size_bytes() + args.scales.size_bytes() + 2 * args.expanded_src_to_dst_row.size_bytes() +
              args.out.size_bytes(),
          (args.bias.present() ? 3 : 2) * read};
}

void moe_finalize_routing(StreamView stream, const MoeFinalizeRoutingArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
