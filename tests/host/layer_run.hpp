#pragma once
// Runs a layer on rows from the host, with every optional output.
#include <moecl/grouped_gemm.hpp>
#include <moecl/moe_layer.hpp>

#include <algorithm>

#include "tests/devices.hpp"

namespace moecl::test {

struct Outputs {
  std::vector<double> out, routed, logits, ids, weights;
  bool operator==(const Outputs&) const = default;
  void append(const Outputs& more) {
    for (const auto field : {&Outputs::out, &Outputs::routed, &Outputs::logits, &Outputs::ids, &Outputs::weights})
      (this->*field).insert((this->*field).end(), (more.*field).begin(), (more.*field).end());
  }
};

/// The tolerance of a layer's output for rounded activated rows. Rows that tensor cores or AVX-512 BF16 multiply are
/// rounded to 16 bits, each element by at most the type's unit roundoff.
inline double row_rounding(DType dtype, const DeviceCaps& caps) {
  const CodeType weights = dtype == DType::bf16 ? CodeType::bf16 : dtype == DType::f16 ? CodeType::f16 : CodeType::f32;
  switch (grouped_gemm::row_dtype(weights, dtype, caps)) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0;
  }
}
inline double bf16_tolerance(const DeviceCaps& caps) { return std::max(1e-5, row_rounding(DType::bf16, caps)); }

/// Runs the layer on guarded tensors and a poisoned workspace.
inline Outputs run_layer(const TestDevice& device, const MoeLayer& layer, const std::vector<double>& input) {
  const std::int64_t hidden = layer.shape().hidden, top_k = layer.shape().router.top_k;
  const std::int64_t tokens = static_cast<std::int64_t>(input.size()) / hidden;
  const std::uint64_t workspace_bytes = layer.workspace_bytes(tokens);
  const GuardedTensor x = upload(device, layer.options().dtype, {tokens, hidden}, input);
  const GuardedTensor out(device, DType::f32, {tokens, hidden}), routed(device, DType::f32, {tokens, hidden}),
      logits(device, DType::f32, {tokens, layer.shape().experts}), ids(device, DType::i32, {tokens, top_k}),
      weights(device, DType::f32, {tokens, top_k}),
      workspace(device, DType::u8, {static_cast<std::int64_t>(workspace_bytes) + 64});
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.router_logits = logits;
  args.topk_ids = ids;
  args.topk_weights = weights;
  args.routed_out = routed;
  // The workspace must be aligned inside the guarded memory, as its ranges are.
  args.workspace = workspace.view().buffer.slice(64 - workspace.view().buffer.offset_bytes % 64, workspace_bytes);
  layer.forward(device.stream, args);
  workspace.check_guards();
  return {out.values(), routed.values(), logits.values(), ids.values(), weights.values()};
}

}  // namespace moecl::test
