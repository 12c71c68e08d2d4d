#include "tests/cases/fused_moe.hpp"

#include <moecl/context.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/gating_top_k.hpp"
#include "tests/oracle/quantize_groups.hpp"

namespace moecl::test {
namespace {

using Values = std::vector<double>;

std::int64_t first_width(const FusedMoeCase& shape) { return shape.activation.input_width(shape.intermediate); }

constexpr std::uint64_t gate_up_seed = 100, down_seed = 200;

/// The decoded values of [experts, n, k] weights, without the scales of columns.
Values values_of_codes(const QuantizedCase& codes, std::int64_t experts, std::int64_t n, std::int64_t k,
                       std::uint64_t seed) {
  Values values;
  for (std::int64_t e = 0; e < experts; ++e) {
    const QuantizedMatrix matrix(codes, n, k, seed + static_cast<std::uint64_t>(e));
    values.insert(values.end(), matrix.values.begin(), matrix.values.end());
  }
  return values;
}

/// The numbers of a case. Weights shrink with K, so that products stay near 1. For codes, scales of columns do that.
struct Numbers {
  Values x, router, gate_up, down, router_bias, gate_up_bias, down_bias, shared, shared_gate;
  Values gate_up_scale, down_scale;  ///< of columns

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
    if (shape.codes) {
      gate_up = values_of_codes(*shape.codes, shape.experts, width, shape.hidden, gate_up_seed);
      down = values_of_codes(*shape.codes, shape.experts, shape.hidden, shape.intermediate, down_seed);
      if (shape.column_scales) {
        gate_up_scale = scaled(gate_up, shape.experts * width, shape.hidden);
        down_scale = scaled(down, shape.experts * shape.hidden, shape.intermediate);
      }
    } else {
      gate_up = some(shape.experts * width * shape.hidden, shape.hidden);
      down = some(shape.experts * shape.hidden * shape.intermediate, shape.intermediate);
    }
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

 private:
  /// Scales of columns that bring products near 1. Multiplies `weights` [columns, k] by them.
  static Values scaled(Values& weights, std::int64_t columns, std::int64_t k) {
    Values scales;
    for (std::int64_t column = 0; column < columns; ++column) {
      double* const first = weights.data() + column * k;
      double squares = 1e-9;
      for (std::int64_t i = 0; i < k; ++i) squares += first[i] * first[i];
      scales.push_back(static_cast<float>(1 / std::sqrt(squares)));
      for (std::int64_t i = 0; i < k; ++i) first[i] *= scales.back();
    }
    return scales;
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
/// A row's values as a product takes them: rounded, or from its codes.
Values quantized(const FusedMoeCase& shape, const Values& row) {
  if (!shape.rows) return rounded(shape.dtype, row);
  Values values;
  const std::size_t group = shape.rows->group == 0 ? row.size() : static_cast<std::size_t>(shape.rows->group);
  for (std::size_t first = 0; first < row.size(); first += group) {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<float> of_group(begin, begin + static_cast<std::ptrdiff_t>(std::min(group, row.size() - first)));
    const std::vector<float> as_codes = oracle::quantize_group(of_group, *shape.rows).values;
    values.insert(values.end(), as_codes.begin(), as_codes.end());
  }
  return values;
}

const double* row_of(const Values& values, std::int64_t row, std::int64_t width) {
  return values.empty() ? nullptr : values.data() + row * width;
}

}  // namespace

std::string FusedMoeCase::describe() const {
  return fmt::format("{}[{}, {}] top {} of {} x {}{}{}{}{}{}", name(dtype), tokens, hidden, top_k, experts,
                     intermediate, biased ? ", biased" : "", shared ? ", shared" : "",
                     codes ? " of " + codes->describe() : "", column_scales ? ", scales of columns" : "",
                     rows ? fmt::format(", rows as {} by {}", name(rows->format), rows->group) : "");
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
    const Values token = quantized(shape, Values(x, x + hidden));
    Values sum(static_cast<std::size_t>(hidden));
    for (std::size_t k = 0; k < best.ids.size(); ++k) {
      const std::int64_t e = best.ids[k];
      const Values activated =
          quantized(shape, oracle::gated_activation(product(token.data(), row_of(numbers.gate_up, e, width * hidden),
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
  const auto experts_of = [&](grouped_gemm::Args& product, std::int64_t n, std::int64_t k, const Values& given,
                              const Values& scale, std::uint64_t seed) {
    product.weights = shape.codes ? quantized_.emplace_back(stream, *shape.codes, experts, n, k, seed).weights
                                  : pack(experts, n, k, given);
    product.weight_scale = put(DType::f32, {experts, n}, scale);
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
  const TensorView row_ends = make(DType::i32, {experts});  // the launch does not read them
  gate_up.a = x;
  gate_up.a_index = make(DType::i32, {slots});
  gate_up.index_divisor = shape.top_k;
  gate_up.row_ends = row_ends;
  experts_of(gate_up, width, hidden, numbers.gate_up, numbers.gate_up_scale, gate_up_seed);
  gate_up.bias = put(DType::f32, {experts, width}, numbers.gate_up_bias);
  gate_up.activation = shape.activation;
  gate_up.out = make(shape.rows ? DType::f32 : shape.dtype, {slots, shape.intermediate});
  grouped_gemm::Args& down = args.down;
  down.a = gate_up.out;
  down.row_ends = row_ends;
  experts_of(down, hidden, shape.intermediate, numbers.down, numbers.down_scale, down_seed);
  down.bias = put(DType::f32, {experts, hidden}, numbers.down_bias);
  down.out = make(DType::f32, {slots, hidden});
  if (shape.rows) {
    const auto codes_of = [&](const TensorView& rows, grouped_gemm::Args& product) {
      quantize_groups::Args codes = *shape.rows;
      const std::int64_t count = rows.shape[0], columns = rows.shape[1],
                         groups = codes.group == 0 ? 1 : (columns + codes.group - 1) / codes.group;
      codes.x = rows;
      codes.q = make(*storage_dtype(codes.format), {count, columns});
      codes.scale = make(codes.rule == quantize_groups::ScaleRule::mx_floor ? DType::u8 : DType::f32, {count, groups});
      product.a = codes.q;
      product.a_scale = codes.group == 0 ? TensorView(codes.scale.buffer, DType::f32, {count}) : codes.scale;
      product.a_group = codes.group;
      return codes;
    };
    args.tokens = codes_of(x, gate_up);
    args.activated = codes_of(gate_up.out, down);
  }
  args.combine.rows = down.out;
  args.combine.slot_rows = make(DType::i32, {slots});
  args.combine.weights = weights;
  args.combine.shared = put(shape.dtype, {tokens, hidden}, numbers.shared);
  args.combine.shared_gate = put(DType::f32, {tokens, 1}, numbers.shared_gate);
  args.combine.out = out;
  scratch_ =
      Buffer(*stream.context,
             std::max<std::uint64_t>(
                 fused_moe::scratch_bytes(tokens, hidden, experts, router.top_k, config, stream.device->caps), 1));
  args.scratch = scratch_.view();
}

std::vector<double> FusedMoeOperands::values(const TensorView& view) const {
  for (const DeviceTensor& tensor : tensors_)
    if (tensor.view.buffer.handle == view.buffer.handle) return tensor.values(stream_);
  return {};
}

QuantizedCase codes_as(CodeType type, std::optional<DType> scale, std::int64_t group, bool zero) {
  QuantizedCase codes;
  codes.type = type, codes.scale = scale, codes.group = group, codes.zero = zero;
  return codes;
}

std::vector<std::pair<const char*, FusedMoeCase>> fused_moe_schemes() {
  FusedMoeCase layer{5, 288, 128, 12, 3};
  std::vector<std::pair<const char*, FusedMoeCase>> schemes{{"bf16", layer}};
  const auto add = [&](const char* name, const QuantizedCase& codes, bool column_scales) {
    layer.codes = codes, layer.column_scales = column_scales;
    schemes.emplace_back(name, layer);
  };
  add("int8_w8a16", codes_as(CodeType::i8), true);
  add("int4_w4a16", codes_as(CodeType::i4, DType::f16, 128), false);
  add("int4_w4a16, zero points", codes_as(CodeType::u4, DType::bf16, 32, true), false);
  add("fp8_w8a16", codes_as(CodeType::f8_e4m3), true);
  add("mxfp4_w4a16", codes_as(CodeType::f4_e2m1, DType::u8, 32), false);
  add("mxfp8_w8a16", codes_as(CodeType::f8_e4m3, DType::u8, 32), false);
  add("nvfp4_w4a16", codes_as(CodeType::f4_e2m1, DType::f8_e4m3, 16), true);
  const auto rows = [&](CodeType format, std::int64_t group) {
    layer.rows.emplace();
    layer.rows->format = format, layer.rows->group = group;
  };
  rows(CodeType::i8, 0);
  add("int8_w8a8", codes_as(CodeType::i8), true);
  add("int4_w4a8", codes_as(CodeType::i4, DType::f16, 128), false);
  rows(CodeType::f8_e4m3, 0);
  add("fp8_w8a8", codes_as(CodeType::f8_e4m3), true);
  rows(CodeType::f8_e4m3, 128);
  add("fp8_w8a8_block", codes_as(CodeType::f8_e4m3, DType::f32, 128), false);
  rows(CodeType::f8_e4m3, 32);
  layer.rows->rule = quantize_groups::ScaleRule::mx_floor;
  add("mxfp8_w8a8", codes_as(CodeType::f8_e4m3, DType::u8, 32), false);
  // Shapes with whole K-steps.
  for (auto [name, in_k_major] : {std::pair{"int8_w8a8", "int8_w8a8, k_major"},
                                  {"fp8_w8a8", "fp8_w8a8, k_major"},
                                  {"fp8_w8a8_block", "fp8_w8a8_block, k_major"},
                                  {"mxfp8_w8a8", "mxfp8_w8a8, k_major"}}) {
    layer = std::find_if(schemes.begin(), schemes.end(), [&](const auto& one) {
              return one.first == std::string_view(name);
            })->second;
    layer.hidden = 256, layer.codes->layout = PanelLayout::k_major;
    schemes.emplace_back(in_k_major, layer);
  }
  return schemes;
}

std::vector<SelfTestResult> self_test_fused_moe(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const auto& [name, shape] : fused_moe_schemes()) {
    // Variant t0 is never chosen, and its programs take long to build.
    if (shape.codes && stream.device->caps.nv_compute_capability < 80) continue;
    for (const grouped_gemm::Variant& variant : fused_moe::variants()) {
      const fused_moe::Config config{variant.name};
      const FusedMoeOperands layer(stream, shape, config);
      if (!fused_moe::reject(layer.args, layer.router, config, *stream.device).empty()) continue;
      fused_moe::enqueue(stream, layer.args, layer.router, config);
      results.push_back({"fused_moe", variant.name, fmt::format("{}, {}", name, shape.describe()),
                         relative_error(layer.values(layer.out), fused_moe_truth(shape).out), shape.tolerance()});
    }
  }
  return results;
}

}  // namespace moecl::test
