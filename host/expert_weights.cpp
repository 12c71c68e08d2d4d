#include "host/expert_weights.hpp"

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {

std::vector<ExpertSegment> load_experts(StreamView stream, WeightUpload& upload, const MoeShape& shape,
                                        const std::vector<ExpertMatrices>& experts, DType dtype,
                                        const LoadProgress& progress) {
  if (experts.empty()) return {};  // a rank that has none
  const std::int64_t inter = shape.intermediate, hidden = shape.hidden;
  std::vector<MatrixStack> gate_up, down;
  for (const ExpertMatrices& expert : experts) {
    gate_up.push_back({expert.gate, expert.up});
    down.push_back({expert.down});
  }
  const WeightFormat gate_up_format = WeightFormat::of(gate_up, dtype), down_format = WeightFormat::of(down, dtype);
  const std::uint64_t one =
      std::max(gate_up_format.size_bytes(2 * inter, hidden), down_format.size_bytes(hidden, inter));
  const std::uint64_t largest = stream.device->caps.max_alloc_bytes;
  if (one > largest)
    fail(ErrorCode::unsupported, "one expert's matrix needs {} bytes, device '{}' allocates at most {}", one,
         stream.device->caps.name, largest);
  const auto total = static_cast<std::int64_t>(experts.size());
  const auto per_segment = static_cast<std::int64_t>(largest / one);

  const bool biased = total > 0 && experts.front().gate_bias.present(),
             biased_down = total > 0 && experts.front().down_bias.present();

  std::vector<ExpertSegment> segments;
  for (std::int64_t first = 0; first < total; first += per_segment) {
    const std::int64_t count = std::min(per_segment, total - first);
    ExpertSegment& segment = segments.emplace_back();
    segment.gate_up = DeviceWeights(stream, gate_up_format, count, 2 * inter, hidden, biased);
    segment.down = DeviceWeights(stream, down_format, count, hidden, inter, biased_down);
    segment.first_expert = static_cast<std::int32_t>(first);
    for (std::int64_t i = 0; i < count; ++i) {
      segment.gate_up.pack(upload, i, gate_up[static_cast<std::size_t>(first + i)]);
      segment.down.pack(upload, i, down[static_cast<std::size_t>(first + i)]);
      const ExpertMatrices& expert = experts[static_cast<std::size_t>(first + i)];
      if (biased) segment.gate_up.pack_bias(upload, i, {expert.gate_bias, expert.up_bias});
      if (biased_down) segment.down.pack_bias(upload, i, {expert.down_bias});
      if (progress) progress(first + i + 1, total);
    }
  }
  return segments;
}

BatchedExpertWeights load_batched_experts(StreamView stream, WeightUpload& upload, const MoeShape& shape,
                                          const std::vector<ExpertMatrices>& experts, const LoadProgress& progress) {
  const std::int64_t count = shape.experts, inter = shape.intermediate, hidden = shape.hidden;
  const std::uint64_t bytes = static_cast<std::uint64_t>(count * inter * hidden) * size_bytes(DType::f32);
  BatchedExpertWeights weights;
  weights.gate_up_memory = Buffer(*stream.context, 2 * bytes);
  weights.down_memory = Buffer(*stream.context, bytes);
  weights.gate_up = TensorView(weights.gate_up_memory.view(), DType::f32, {count, 2 * inter, hidden});
  weights.down = TensorView(weights.down_memory.view(), DType::f32, {count, hidden, inter});
  const TensorView gate_up_rows(weights.gate_up_memory.view(), DType::f32, {count * 2 * inter, hidden});
  const TensorView down_rows(weights.down_memory.view(), DType::f32, {count * hidden, inter});
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpertMatrices& expert = experts[static_cast<std::size_t>(i)];
    upload.copy(expert.gate.plain, gate_up_rows.rows(2 * i * inter, inter));
    upload.copy(expert.up.plain, gate_up_rows.rows((2 * i + 1) * inter, inter));
    upload.copy(expert.down.plain, down_rows.rows(i * hidden, hidden));
    if (progress) progress(i + 1, count);
  }
  return weights;
}

}  // namespace moecl
