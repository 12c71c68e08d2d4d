#include "tests/cases/fused_moe.hpp"

#include <moecl/context.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {
namespace {

using Values = std::vector<double>;

std::int64_t first_width(const FusedMoeCase& shape) { return shape.activation.input_width(shape.intermediate); }

/// The numbers of a case. Weights shrink with K, so that products stay near 1.
struct Numbers {
  Values x, router, gate_up, down, router_bias, gate_up_bias, down_bias, shared, shared_gate;

  explicit Numbers(const FusedMoeCase& shape) {
    std::uint64_t seed = 1;
    const auto some = [&](std::int64_t count, std::int64_t k = 1) {
      Values values = normal(static_cast<std::size_t>(count), seed++);
      for (double& value : values) value /= std::sqrt(static_cast<double>(k));
      return rounded(shape.dtype, values);
    };
    const std::int64_t width = first_width(shape);
    x = some(shape.tokens * shape.hidden);
    router = some(shape.experts * shape.hidden, shape.hidden);
    gate_up = some(shape.experts * width * shape.hidden, shape.hidden);
    down = some(shape.experts * shape.hidden * shape.intermediate, shape.intermediate);
    if (shape.biased) {
      router_bias = some(shape.experts);
      gate_up_bias = some(shape.experts * width);
      down_bias = some(shape.experts * shape.hidden);
    }
    if (shape.shared) {
      shared = some(shape.tokens * shape.hidden);
      shared_gate = some(shape.tokens);
    }
  }
};

/// a W^T + bias of one row and one matrix [n, k].
Values product(const double* a, const double* weights, const double* bias, std::int64_t n, std::int64_t k) {
  Values out(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j) {
    double sum = bias != nullptr ? bias[j] : 0;
    for (std::int64_t i = 0; i < k; ++i) sum += a[i] * weights[j * k + i];
    out[static_cast<std::size_t>(j)] = sum;
  }
  return out;
}
const double* row_of(const Values& values, std::int64_t row, std::int64_t width) {
  return values.empty() ? nullptr : values.data() + row * width;
}

}  // namespace

std::string FusedMoeCase::describe() const {
  return fmt::format("{}[{}, {}] top {} of {} x {}{}{}", name(dtype), tokens, hidden, top_k, experts, intermediate,
                     biased ? ", biased" : "", shared ? ", shared" : "");
}

FusedMoeTruth fused_moe_truth(const FusedMoeCase& shape) {
  const Numbers numbers(shape);
  const std::int64_t hidden = shape.hidden, inner = shape.intermediate, width = first_width(shape);
  FusedMoeTruth truth;
  RouterSpec spec = shape.router;
  spec.top_k = shape.top_k;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const double* x = row_of(numbers.x, t, hidden);
    const oracle::TopK best = oracle::gating_top_k(
        product(x, numbers.router.data(), row_of(numbers.router_bias, 0, 0), shape.experts, hidden), {}, spec);
    Values sum(static_cast<std::size_t>(hidden));
    for (std::size_t k = 0; k < best.ids.size(); ++k) {
      const std::int64_t e = best.ids[k];
      const Values activated =
          rounded(shape.dtype, oracle::gated_activation(product(x, row_of(numbers.gate_up, e, width * hidden),
                                                                row_of(numbers.gate_up_bias, e, width), width, hidden),
                                                        shape.activation));
      const Values row = product(activated.data(), row_of(numbers.down, e, hidden * inner),
                                 row_of(numbers.down_bias, e, hidden), hidden, inner);
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += best.weights[k] * row[j];
    }
    const double gate = shape.shared ? 1 / (1 + std::exp(-numbers.shared_gate[static_cast<std::size_t>(t)])) : 0;
    for (std::size_t j = 0; shape.shared && j < sum.size(); ++j) sum[j] += gate * row_of(numbers.shared, t, hidden)[j];
    truth.ids.insert(truth.ids.end(), best.ids.begin(), best.ids.end());
    truth.out.insert(truth.out.end(), sum.begin(), sum.end());
  }
  return truth;
}

FusedMoeOperands::FusedMoeOperands(StreamView stream, const FusedMoeCase& shape, const fused_moe::Config& config)
    : router(shape.router), stream_(stream) {
  const Numbers numbers(shape);
  const std::int64_t tokens = shape.tokens, hidden = shape.hidden, experts = shape.experts, width = first_width(shape),
                     slots = tokens * shape.top_k;
  router.top_k = shape.top_k;
  const auto make = [&](DType dtype, std::initializer_list<std::int64_t> dims) {
    return tensors_.emplace_back(stream, dtype, dims).view;
  };
  const auto put = [&](DType dtype, std::initializer_list<std::int64_t> dims, const Values& given) {
    return given.empty() ? TensorView() : tensors_.emplace_back(stream, dtype, dims, given).view;
  };
  const auto pack = [&](std::int64_t matrices, std::int64_t n, std::int64_t k, const Values& given) {
    return packed_.emplace_back(stream, shape.dtype, matrices, n, k, given).weights;
  };
  const TensorView x = tensors_
                           .emplace_back(stream, shape.dtype, std::initializer_list<std::int64_t>{tokens, hidden},
                                         numbers.x)
                           .view,
                   logits = make(DType::f32, {tokens, experts}), weights = make(DType::f32, {tokens, shape.top_k});
  ids = make(DType::i32, {tokens, shape.top_k});
  fault = put(DType::i32, {4}, Values(4));
  out = make(DType::f32, {tokens, hidden});

  grouped_gemm::Args& to_logits = args.router;
  to_logits.a = x;
  to_logits.weights = pack(1, experts, hidden, numbers.router);
  to_logits.bias = put(DType::f32, {1, experts}, numbers.router_bias);
  to_logits.out = logits;
  args.gating = {logits, {}, ids, weights};
  args.fault = fault;
  grouped_gemm::Args& gate_up = args.gate_up;
  const TensorView row_ends = make(DType::i32, {experts});  // which the launch does not read
  gate_up.a = x;
  gate_up.a_index = make(DType::i32, {slots});
  gate_up.index_divisor = shape.top_k;
  gate_up.row_ends = row_ends;
  gate_up.weights = pack(experts, width, hidden, numbers.gate_up);
  gate_up.bias = put(DType::f32, {experts, width}, numbers.gate_up_bias);
  gate_up.activation = shape.activation;
  gate_up.out = make(shape.dtype, {slots, shape.intermediate});
  grouped_gemm::Args& down = args.down;
  down.a = gate_up.out;
  down.row_ends = row_ends;
  down.weights = pack(experts, hidden, shape.intermediate, numbers.down);
  down.bias = put(DType::f32, {experts, hidden}, numbers.down_bias);
  down.out = make(DType::f32, {slots, hidden});
  args.combine.rows = down.out;
  args.combine.slot_rows = make(DType::i32, {slots});
  args.combine.weights = weights;
  args.combine.shared = put(shape.dtype, {tokens, hidden}, numbers.shared);
  args.combine.shared_gate = put(DType::f32, {tokens, 1}, numbers.shared_gate);
  args.combine.out = out;
  scratch_ = Buffer(
      *stream.context,
      std::max<std::uint64_t>(fused_moe::scratch_bytes(tokens, hidden, experts, config, stream.device->caps), 1));
  args.scratch = scratch_.view();
}

std::vector<double> FusedMoeOperands::values(const TensorView& view) const {
  for (const DeviceTensor& tensor : tensors_)
    if (tensor.view.buffer.handle == view.buffer.handle) return tensor.values(stream_);
  return {};
}

std::vector<SelfTestResult> self_test_fused_moe(StreamView stream) {
  const FusedMoeCase shape{5, 96, 64, 12, 3};
  std::vector<SelfTestResult> results;
  for (const grouped_gemm::Variant& variant : fused_moe::variants()) {
    const fused_moe::Config config{variant.name};
    const FusedMoeOperands layer(stream, shape, config);
    if (!fused_moe::why_apart(layer.args, layer.router, config, stream.device->caps).empty()) continue;
    fused_moe::enqueue(stream, layer.args, layer.router, config);
    results.push_back({"fused_moe", variant.name, shape.describe(),
                       relative_error(layer.values(layer.out), fused_moe_truth(shape).out), 0x1p-8});
  }
  return results;
}

}  // namespace moecl::test
