#include "host/layer/expert_weights.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/check.hpp"

namespace moecl {

namespace {

/// For each expert, the matrices that are packed side by side.
struct ExpertStacks {
  std::vector<MatrixStack> gate_up, down;

  explicit ExpertStacks(const std::vector<ExpertMatrices>& experts) {
    for (const ExpertMatrices& expert : experts) {
      gate_up.push_back(first_matrices(expert));
      down.push_back({expert.down});
    }
  }
};

void expect_plain(const std::vector<MatrixStack>& stacks) {
  for (const MatrixStack& stack : stacks)
    for (const WeightMatrix& matrix : stack)
      require(!matrix.quantized(), "quantize: the experts are quantized already ({})", name(matrix.codes.type));
}

WeightFormat format_of(const std::vector<MatrixStack>& stacks, DType dtype, const OperandQuant& quantize,
                       std::int64_t k, RowKind rows, std::optional<PanelLayout> layout, const DeviceCaps& caps) {
  if (quantize.quantized()) expect_plain(stacks);
  WeightFormat format =
      quantize.quantized() ? WeightFormat::of(quantize, stacks.front()) : WeightFormat::of(stacks, dtype);
  if (layout) {
    const std::vector<PanelLayout> read = grouped_gemm::panel_layouts(rows.dtype, format.type, caps);
    if (std::find(read.begin(), read.end(), *layout) == read.end())
      fail(ErrorCode::unsupported, "layout of weights: no kernel of device '{}' multiplies {} rows by {} in {}",
           caps.name, name(rows.dtype), name(format.type), name(*layout));
    format.layout = *layout;
  } else if (!format.zero && (format.groups == 0 || format.group != 0)) {
    format.layout = grouped_gemm::panel_layout({rows.dtype, rows.group, format.type, k, format.group}, caps);
  }
  return format;
}

/// The slots that a budget pays for; 0: there is no budget.
CacheOptions slots_of(const ExpertBudget& budget, std::uint64_t expert_bytes, std::int64_t experts,
                      const DeviceCaps& caps) {
  CacheOptions cache;
  cache.in_place = budget.missed == MissedExperts::in_place ||
                   (budget.missed == MissedExperts::automatic && caps.type == DeviceType::cpu);
  require(budget.percent >= 0 && budget.percent <= 100, "memory budget: {} % of the experts", budget.percent);
  require(budget.bytes == 0 || budget.percent == 0, "memory budget: {} bytes and {} %, expected one of them",
          budget.bytes, budget.percent);
  if (budget.bytes == 0 && budget.percent == 0) return cache;
  if (budget.bytes != 0) {
    require(budget.bytes >= expert_bytes, "memory budget: {} bytes, one expert needs {}", budget.bytes, expert_bytes);
    cache.slots = static_cast<std::int64_t>(std::min(budget.bytes / expert_bytes, static_cast<std::uint64_t>(experts)));
  } else {
    cache.slots = static_cast<std::int64_t>(std::ceil(static_cast<double>(experts) * budget.percent / 100 - 1e-9));
  }
  using expert_slots::Policy;
  cache.policy = budget.policy == ResidencyPolicy::lru           ? Policy::lru
                 : budget.policy == ResidencyPolicy::least_stale ? Policy::least_stale
                                                                 : Policy::fixed;
  if (budget.policy != ResidencyPolicy::fixed) return cache;
  require(static_cast<std::int64_t>(budget.loads.size()) == experts, "memory budget: loads of {} experts, here are {}",
          budget.loads.size(), experts);
  for (const float load : budget.loads) require(load >= 0, "memory budget: a load of {}", load);
  cache.priorities = budget.loads;
  return cache;
}

}  // namespace

std::vector<ExpertSegment> allocate_experts(StreamView stream, const MoeShape& shape,
                                            const std::vector<ExpertMatrices>& experts, DType dtype,
                                            const OperandQuant& quantize, RowKind rows, const ExpertBudget& budget,
                                            std::optional<PanelLayout> layout) {
  if (experts.empty()) return {};  // a rank without experts
  const std::int64_t inter = shape.intermediate, hidden = shape.hidden, width = shape.activation.input_width(inter);
  const ExpertStacks stacks(experts);
  const DeviceCaps& caps = stream.device->caps;
  const WeightFormat gate_up = format_of(stacks.gate_up, dtype, quantize, hidden, rows, layout, caps),
                     down = format_of(stacks.down, dtype, quantize, inter, rows, layout, caps);
  const std::uint64_t one = std::max(gate_up.size_bytes(width, hidden), down.size_bytes(hidden, inter));
  const std::uint64_t largest = caps.max_alloc_bytes;
  if (one > largest)
    fail(ErrorCode::unsupported, "one expert's matrix needs {} bytes, device '{}' allocates at most {}", one, caps.name,
         largest);
  const auto total = static_cast<std::int64_t>(experts.size());
  const auto per_segment = static_cast<std::int64_t>(largest / one);
  const CacheOptions slots =
      slots_of(budget, gate_up.size_bytes(width, hidden) + down.size_bytes(hidden, inter), total, caps);
  if (slots.slots > 0 && per_segment < total)
    fail(ErrorCode::unsupported,
         "memory budget: {} experts of {} bytes are more than one allocation of device '{}', {}", total, one,
         stream.device->caps.name, largest);
  std::vector<ExpertSegment> segments;
  for (std::int64_t first = 0; first < total; first += per_segment) {
    ExpertSegment& segment = segments.emplace_back();
    segment.experts = std::min(per_segment, total - first);
    segment.gate_up =
        DeviceWeights(stream, gate_up, segment.experts, width, hidden, experts.front().up_bias.present(), slots);
    segment.down =
        DeviceWeights(stream, down, segment.experts, hidden, inter, experts.front().down_bias.present(), slots);
    segment.first_expert = static_cast<std::int32_t>(first);
  }
  return segments;
}

void expect_experts(const std::vector<ExpertSegment>& segments, const std::vector<ExpertMatrices>& experts, DType dtype,
                    const OperandQuant& quantize) {
  if (experts.empty()) return;
  const ExpertStacks stacks(experts);
  if (quantize.quantized()) {
    expect_plain(stacks.gate_up);
    return expect_plain(stacks.down);
  }
  segments.front().gate_up.expect(stacks.gate_up, dtype, "experts' gate and up");
  segments.front().down.expect(stacks.down, dtype, "experts' down");
}

void load_expert(WeightUpload& upload, std::vector<ExpertSegment>& segments, std::int64_t number,
                 const ExpertMatrices& expert, DeviceQuantizer* quantizer) {
  const auto holder = std::find_if(segments.begin(), segments.end(), [&](const ExpertSegment& segment) {
    return number < segment.first_expert + segment.experts;
  });
  const std::int64_t at = number - holder->first_expert;
  const auto pack = [&](DeviceWeights& to, const MatrixStack& stack) {
    quantizer == nullptr ? to.pack(upload, at, stack) : to.pack(upload, *quantizer, at, stack);
  };
  pack(holder->gate_up, first_matrices(expert));
  pack(holder->down, {expert.down});
  if (expert.up_bias.present()) holder->gate_up.pack_bias(upload, at, first_biases(expert));
  if (expert.down_bias.present()) holder->down.pack_bias(upload, at, {expert.down_bias});
}

void load_experts(WeightUpload& upload, std::vector<ExpertSegment>& segments,
                  const std::vector<ExpertMatrices>& experts, DeviceQuantizer* quantizer,
                  const LoadProgress& progress) {
  const auto total = static_cast<std::int64_t>(experts.size());
  for (std::int64_t number = 0; number < total; ++number) {
    load_expert(upload, segments, number, experts[static_cast<std::size_t>(number)], quantizer);
    if (progress) progress(number + 1, total);
  }
}

BatchedExpertWeights allocate_batched_experts(StreamView stream, const MoeShape& shape) {
  const std::int64_t count = shape.experts, inter = shape.intermediate, hidden = shape.hidden,
                     width = shape.activation.input_width(inter);
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(count * hidden) * size_bytes(DType::f32);
  BatchedExpertWeights weights;
  weights.gate_up_memory = Buffer(*stream.context, static_cast<std::uint64_t>(width) * row_bytes);
  weights.down_memory = Buffer(*stream.context, static_cast<std::uint64_t>(inter) * row_bytes);
  weights.gate_up = TensorView(weights.gate_up_memory.view(), DType::f32, {count, width, hidden});
  weights.down = TensorView(weights.down_memory.view(), DType::f32, {count, hidden, inter});
  return weights;
}

void load_expert(WeightUpload& upload, const BatchedExpertWeights& weights, std::int64_t number,
                 const ExpertMatrices& expert) {
  const auto [count, hidden, inter] = std::tuple(weights.down.shape[0], weights.down.shape[1], weights.down.shape[2]);
  const std::int64_t width = weights.gate_up.shape[1];
  const TensorView gate_up_rows(weights.gate_up_memory.view(), DType::f32, {count * width, hidden});
  const TensorView down_rows(weights.down_memory.view(), DType::f32, {count * hidden, inter});
  if (expert.gate.present()) upload.copy(expert.gate.plain, gate_up_rows.rows(number * width, inter));
  upload.copy(expert.up.plain, gate_up_rows.rows((number + 1) * width - inter, inter));
  upload.copy(expert.down.plain, down_rows.rows(number * hidden, hidden));
}

void load_experts(WeightUpload& upload, const BatchedExpertWeights& weights, const std::vector<ExpertMatrices>& experts,
                  const LoadProgress& progress) {
  const auto total = static_cast<std::int64_t>(experts.size());
  for (std::int64_t number = 0; number < total; ++number) {
    load_expert(upload, weights, number, experts[static_cast<std::size_t>(number)]);
    if (progress) progress(number + 1, total);
  }
}

}  // namespace moecl
