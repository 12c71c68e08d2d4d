#include "tests/host/layer_forms.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "tests/cases/device_memory.hpp"
#include "tests/host/host_codes.hpp"
#include "tests/oracle/gating_top_k.hpp"
#include "tests/oracle/moe_block.hpp"

namespace moecl::test {
namespace {

using Values = std::vector<double>;

Values scaled(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::vector<unsigned char> random_bytes(DType dtype, std::int64_t count, std::uint64_t seed, double factor) {
  return encode(dtype, scaled(normal(static_cast<std::size_t>(count), seed), factor));
}

/// Rows [first, first + rows) of a matrix; absent where there is none.
HostMatrix matrix(const std::vector<unsigned char>& bytes, DType dtype, std::int64_t first, std::int64_t rows,
                  std::int64_t columns) {
  if (bytes.empty()) return {};
  const auto skipped = static_cast<std::size_t>(first * columns) * size_bytes(dtype);
  return {reinterpret_cast<const std::byte*>(bytes.data()) + skipped, dtype, rows, columns};
}

Values row_of(const Values& rows, std::int64_t row, std::int64_t columns) {
  return {rows.begin() + row * columns, rows.begin() + (row + 1) * columns};
}

/// Logits of the layer's router.
Values router_logits(const RandomLayer& layer, const Values& x) {
  const std::int64_t hidden = layer.shape.hidden, choices = layer.shape.choices();
  const Values router = decode(layer.router_dtype, layer.router);
  Values logits;
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(x.size()); first += hidden)
    for (std::int64_t e = 0; e < choices; ++e) {
      double sum = 0;
      for (std::int64_t h = 0; h < hidden; ++h)
        sum += x[static_cast<std::size_t>(first + h)] * router[static_cast<std::size_t>(e * hidden + h)];
      logits.push_back(sum);
    }
  return logits;
}

/// Weights of given experts: the score of each, or with `renormalise` its share. A table is of softmax here.
Values table_weights(const RouterSpec& spec, const Values& logits, const Values& ids) {
  double total = 0;
  for (const double logit : logits) total += std::exp(logit);
  Values weights;
  double sum = 0;
  for (const double id : ids) sum += weights.emplace_back(std::exp(logits[static_cast<std::size_t>(id)]) / total);
  for (double& weight : weights)
    weight = weight / (spec.renormalise ? sum : 1) * static_cast<double>(spec.scaling_factor);
  return weights;
}

void route(LayerForm& form, std::int64_t tokens) {
  const MoeShape& shape = form.layer.shape;
  const std::int64_t top_k = shape.router.top_k, choices = shape.choices();
  if (!form.ids.empty()) {
    form.chosen = form.ids;
    return;
  }
  Values logits = form.logits;
  if (logits.empty())
    logits = form.layer.router.empty() ? Values(static_cast<std::size_t>(tokens * choices))
                                       : router_logits(form.layer, form.x);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Values row = row_of(logits, t, choices);
    Values ids, weights;
    if (shape.vocabulary > 0) {
      const auto token = static_cast<std::int64_t>(form.token_ids[static_cast<std::size_t>(t)]);
      for (std::int64_t k = 0; k < top_k; ++k)
        ids.push_back(static_cast<double>(form.layer.table[static_cast<std::size_t>(token * top_k + k)]));
      weights = table_weights(shape.router, row, ids);
    } else {
      const oracle::TopK chosen = oracle::gating_top_k(row, {}, shape.router);
      ids.assign(chosen.ids.begin(), chosen.ids.end());
      weights = chosen.weights;
    }
    form.chosen.insert(form.chosen.end(), ids.begin(), ids.end());
    form.weights.insert(form.weights.end(), weights.begin(), weights.end());
  }
}

/// What the layer must give. @param input  what the experts see, as numbers. @param weights  of the experts, as stored
void compute(LayerForm& form, const Values& input, const MoeWeights& weights, std::int64_t tokens) {
  route(form, tokens);
  const MoeShape& shape = form.layer.shape;
  const std::int64_t top_k = shape.router.top_k, width = shape.expert_width();
  MoeShape expert = shape;  // one expert a slot
  expert.hidden = width;
  expert.shared_intermediate = 0;
  expert.shared_gate = false;
  expert.router.top_k = 1;
  const Values alpha_1 = decode(form.layer.dtype, form.layer.alpha_1),
               alpha_2 = decode(form.layer.dtype, form.layer.alpha_2), v = decode(form.layer.dtype, form.layer.v);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Values x = row_of(input, t, width);
    Values sum(static_cast<std::size_t>(width));
    bool decided = true;
    for (std::int64_t k = 0; k < top_k; ++k) {
      const auto slot = static_cast<std::size_t>(t * top_k + k);
      const auto id = static_cast<std::int64_t>(form.chosen[slot]);
      const std::int64_t special = id - shape.experts - shape.zero_experts, constant = special - shape.copy_experts;
      Values row(static_cast<std::size_t>(width)), given = row;
      if (id >= 0 && id < shape.experts) {
        const oracle::MoeBlockRows rows = oracle::moe_block({expert, weights, form.options.activations, {}},
                                                            {x.begin(), x.end()}, {static_cast<double>(id)}, {1});
        row = given = rows.out;
        decided = decided && rows.decided.front();
      }
      for (std::size_t h = 0; h < row.size() && id >= shape.experts && special >= 0; ++h) {
        const std::size_t at = static_cast<std::size_t>(std::max<std::int64_t>(constant, 0) * width) + h;
        row[h] = constant < 0 ? x[h] : alpha_1[at] * x[h] + alpha_2[at] * v[at];
      }
      form.rows.insert(form.rows.end(), given.begin(), given.end());
      for (std::size_t h = 0; h < row.size(); ++h) sum[h] += form.weights[slot] * row[h];
    }
    form.routed.insert(form.routed.end(), sum.begin(), sum.end());
    form.compared.push_back(decided);
  }
  if (shape.shared_intermediate > 0) {
    MoeShape shared = shape;
    shared.router.top_k = 1;
    const oracle::MoeBlockRows rows =
        oracle::moe_block({shared, weights, {}, {}}, {form.x.begin(), form.x.end()},
                          Values(static_cast<std::size_t>(tokens)), Values(static_cast<std::size_t>(tokens)));
    form.shared = rows.out;
  }
  if (width != shape.hidden && shape.shared_intermediate > 0) return;
  form.out = form.routed;
  for (std::size_t i = 0; i < form.shared.size(); ++i) form.out[i] += form.shared[i];
}

MoeShape small_shape() {
  MoeShape shape;
  shape.hidden = 32;
  shape.intermediate = 24;
  shape.experts = 6;
  shape.router.top_k = 3;
  shape.router.renormalise = true;
  return shape;
}

Values random_rows(DType dtype, std::int64_t tokens, std::int64_t columns, std::uint64_t seed) {
  return rounded(dtype, normal(static_cast<std::size_t>(tokens * columns), seed));
}

constexpr std::int64_t few = 9;

/// Rounded to bf16 it would choose other experts.
LayerForm router_in_f32() {
  MoeShape shape = small_shape();
  shape.experts = 32;
  shape.intermediate = 16;
  shape.router.top_k = 4;
  LayerForm form{"router in f32", RandomLayer(shape, true, DType::bf16)};
  form.options.dtype = DType::bf16;
  form.tolerance = 1e-2;  // of rows in bf16
  constexpr std::int64_t tokens = 256;
  form.x = random_rows(DType::bf16, tokens, shape.hidden, 11);
  compute(form, form.x, form.layer.weights(), tokens);
  LayerForm rounding = form;
  rounding.layer.router = encode(DType::f32, rounded(DType::bf16, decode(DType::f32, form.layer.router)));
  rounding.chosen.clear();
  route(rounding, tokens);
  EXPECT_NE(rounding.chosen, form.chosen);
  return form;
}

LayerForm by_token_id(const char* name, bool has_router, bool given_logits) {
  MoeShape shape = small_shape();
  shape.vocabulary = 50;
  shape.router.scaling_factor = 2.5F;
  shape.router.renormalise = !given_logits;
  LayerForm form{name, RandomLayer(shape, has_router)};
  form.x = random_rows(DType::f32, few, shape.hidden, 12);
  if (given_logits) form.logits = random_rows(DType::f32, few, shape.choices(), 13);
  for (std::int64_t t = 0; t < few; ++t) form.token_ids.push_back(static_cast<double>(t * 17 % 50));
  compute(form, form.x, form.layer.weights(), few);
  return form;
}

/// Every group has a number of the largest magnitude, so that quantizing them again would find the same codes.
LayerForm codes(const char* scheme, DType code_dtype, DType scale_dtype, std::int64_t group, double largest,
                double tolerance) {
  MoeShape shape = small_shape();
  shape.hidden = 256;
  shape.intermediate = 64;
  shape.experts = 3;
  shape.router.top_k = 2;
  LayerForm form{scheme, RandomLayer(shape, false), {}, scheme, code_dtype, scale_dtype, group};
  const QuantScheme how = *scheme_named(scheme);
  form.options.quantize = how.weights;
  form.options.activations = how.activations;
  form.tolerance = tolerance;
  form.logits = random_rows(DType::f32, few, shape.experts, 14);
  const std::int64_t columns = shape.hidden, run = group == 0 ? columns : group;
  form.input = rounded(code_dtype, scaled(normal(static_cast<std::size_t>(few * columns), 15), largest / 8));
  Values numbers;
  for (std::int64_t i = 0; i < few * columns; ++i) {
    double& code = form.input[static_cast<std::size_t>(i)];
    if (i % run == 0) {
      code = i % (2 * run) == 0 ? largest : -largest;
      form.scales.push_back(scale_dtype == DType::u8 ? 117 + static_cast<double>(i / run % 4)
                                                     : 0.001 * (1 + static_cast<double>(i / run % 7)));
      form.scales.back() = rounded(scale_dtype, {form.scales.back()}).front();
    }
    code = std::min(std::max(code, -largest), largest);
    const double scale =
        scale_dtype == DType::u8 ? std::ldexp(1.0, static_cast<int>(form.scales.back()) - 127) : form.scales.back();
    numbers.push_back(code * scale);
  }
  const HostCodes stored(form.layer.weights(), how.weights);
  compute(form, numbers, stored.weights, few);
  return form;
}

LayerForm latent(const char* name, std::int64_t shared) {
  MoeShape shape = small_shape();
  shape.expert_hidden = 48;
  shape.shared_intermediate = shared;
  LayerForm form{name, RandomLayer(shape)};
  form.x = random_rows(DType::f32, few, shape.hidden, 16);
  form.input = random_rows(DType::f32, few, shape.expert_hidden, 17);
  compute(form, form.input, form.layer.weights(), few);
  return form;
}

LayerForm special(const char* name, std::int32_t constants, std::int64_t shared, bool given_ids) {
  MoeShape shape = small_shape();
  shape.experts = 4;
  shape.zero_experts = 2;
  shape.copy_experts = 1;
  shape.const_experts = constants;
  shape.shared_intermediate = shared;
  shape.shared_gate = false;
  LayerForm form{name, RandomLayer(shape)};
  form.x = random_rows(DType::f32, few, shape.hidden, 18);
  for (std::int64_t slot = 0; given_ids && slot < few * shape.router.top_k; ++slot) {
    form.ids.push_back(slot % 10 == 9 ? -1 : static_cast<double>(slot % 10 % shape.choices()));
    form.weights.push_back(0.25 * static_cast<double>(1 + slot % 5));
  }
  compute(form, form.x, form.layer.weights(), few);
  return form;
}

}  // namespace

RandomLayer::RandomLayer(const MoeShape& of, bool has_router, DType stored) : shape(of), dtype(stored) {
  const std::int64_t hidden = shape.hidden, width = shape.expert_width(), inter = shape.intermediate,
                     shared = shape.shared_intermediate, experts = shape.experts;
  const auto deviation = [](std::int64_t columns) { return 1 / std::sqrt(static_cast<double>(columns)); };
  if (has_router) router = random_bytes(router_dtype, shape.choices() * hidden, 1, deviation(hidden));
  gate = random_bytes(dtype, experts * inter * width, 2, deviation(width));
  up = random_bytes(dtype, experts * inter * width, 3, deviation(width));
  down = random_bytes(dtype, experts * width * inter, 4, deviation(inter));
  if (shared > 0) {
    shared_gate = random_bytes(dtype, shared * hidden, 5, deviation(hidden));
    shared_up = random_bytes(dtype, shared * hidden, 6, deviation(hidden));
    shared_down = random_bytes(dtype, hidden * shared, 7, deviation(shared));
  }
  if (shape.const_experts > 0) {
    alpha_1 = random_bytes(dtype, shape.const_experts * width, 8, 1);
    alpha_2 = random_bytes(dtype, shape.const_experts * width, 9, 1);
    v = random_bytes(dtype, shape.const_experts * width, 10, 1);
  }
  for (std::int64_t i = 0; i < shape.vocabulary * shape.router.top_k; ++i) {
    const std::int64_t token = i / shape.router.top_k, k = i % shape.router.top_k;
    table.push_back((token * 5 + k * (1 + token % 2)) % shape.choices());  // distinct in a token
  }
}

MoeWeights RandomLayer::weights(std::int64_t first, std::int64_t count) const {
  const std::int64_t hidden = shape.hidden, width = shape.expert_width(), inter = shape.intermediate,
                     shared_inter = shape.shared_intermediate;
  MoeWeights all;
  all.router = matrix(router, router_dtype, 0, shape.choices(), hidden);
  for (std::int64_t e = first; e < first + count; ++e) {
    ExpertMatrices& expert = all.experts.emplace_back();
    expert.gate = matrix(gate, dtype, e * inter, inter, width);
    expert.up = matrix(up, dtype, e * inter, inter, width);
    expert.down = matrix(down, dtype, e * width, width, inter);
  }
  all.shared.gate = matrix(shared_gate, dtype, 0, shared_inter, hidden);
  all.shared.up = matrix(shared_up, dtype, 0, shared_inter, hidden);
  all.shared.down = matrix(shared_down, dtype, 0, hidden, shared_inter);
  all.const_alpha_1 = matrix(alpha_1, dtype, 0, shape.const_experts, width);
  all.const_alpha_2 = matrix(alpha_2, dtype, 0, shape.const_experts, width);
  all.const_v = matrix(v, dtype, 0, shape.const_experts, width);
  if (!table.empty())
    all.expert_table = {reinterpret_cast<const std::byte*>(table.data()), DType::i64, shape.vocabulary,
                        shape.router.top_k};
  return all;
}

moecl_layer_desc RandomLayer::desc() const {
  moecl_layer_desc desc{};
  desc.size_bytes = sizeof(desc);
  desc.hidden = shape.hidden;
  desc.intermediate = shape.intermediate;
  desc.shared_intermediate = shape.shared_intermediate;
  desc.experts = shape.experts;
  desc.top_k = shape.router.top_k;
  desc.renormalise = shape.router.renormalise ? 1 : 0;
  desc.scaling_factor = shape.router.scaling_factor;
  desc.expert_hidden = shape.expert_hidden;
  desc.zero_experts = shape.zero_experts;
  desc.copy_experts = shape.copy_experts;
  desc.const_experts = shape.const_experts;
  desc.vocabulary = shape.vocabulary;
  const auto array = [](const auto& values, std::int32_t type) {
    return moecl_host_array{values.empty() ? nullptr : values.data(), values.empty() ? 0 : type};
  };
  const std::int32_t type = dtype == DType::bf16 ? MOECL_BF16 : MOECL_F32;
  desc.router = array(router, MOECL_F32);
  desc.gate = array(gate, type);
  desc.up = array(up, type);
  desc.down = array(down, type);
  desc.shared_gate = array(shared_gate, type);
  desc.shared_up = array(shared_up, type);
  desc.shared_down = array(shared_down, type);
  desc.const_alpha_1 = array(alpha_1, type);
  desc.const_alpha_2 = array(alpha_2, type);
  desc.const_v = array(v, type);
  desc.expert_table = array(table, MOECL_I64);
  return desc;
}

std::vector<LayerForm> layer_forms(const DeviceCaps& caps) {
  const double tolerance = caps.correctly_rounded_divide ? 1e-5 : 5e-3;
  const double of_f8 = caps.nv_sm90a ? std::max(tolerance, 0x1p-11) : tolerance;  // wgmma adds fp8 to 13 bits
  return {router_in_f32(),
          by_token_id("experts by token id", true, false),
          by_token_id("experts by token id, given logits", true, true),
          by_token_id("experts by token id, no router", false, false),
          codes("int8_w8a8", DType::i8, DType::f32, 0, 127, tolerance),
          codes("fp8_w8a8", DType::f8_e4m3, DType::f32, 0, 448, of_f8),
          codes("fp8_w8a8_block", DType::f8_e4m3, DType::f32, 128, 448, of_f8),
          codes("mxfp8_w8a8", DType::f8_e4m3, DType::u8, 32, 448, of_f8),
          latent("latent experts", 0),
          latent("latent experts, shared ones", 40),
          special("zero and copy experts", 0, 0, false),
          special("zero, copy and constant experts, shared ones", 2, 40, false),
          special("zero, copy and constant experts, given ids", 2, 0, true)};
}

void expect_form(const LayerForm& form, const std::vector<double>& got, const std::vector<double>& expected,
                 const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << form.name << ", " << what;
  if (expected.empty()) return;
  const std::size_t width = expected.size() / form.compared.size();
  std::vector<double> some, others;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (form.compared[i / width]) some.push_back(got[i]), others.push_back(expected[i]);
  EXPECT_FALSE(some.empty()) << form.name;
  EXPECT_LE(relative_error(some, others), form.tolerance) << form.name << ", " << what;
}

}  // namespace moecl::test
