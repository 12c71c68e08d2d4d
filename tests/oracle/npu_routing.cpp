#include "tests/oracle/npu_routing.hpp"

#include <moecl/f16.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/oracle/mx_quantize.hpp"

namespace moecl::test::oracle {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Positions of `keys` in ascending order of the keys; equal keys keep their order.
std::vector<std::size_t> sorted_places(const Ints& keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  return order;
}

void append_row(std::vector<double>& to, const Matrix& from, std::size_t row) {
  const auto begin = from.values.begin() + static_cast<std::ptrdiff_t>(row * from.width);
  to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(from.width));
}

Tensor undefined(std::size_t count) { return {std::vector<double>(count), std::vector<bool>(count)}; }

void set(Tensor& tensor, std::size_t i, double value) {
  tensor.values[i] = value;
  tensor.defined[i] = true;
}

double f16(double value) { return f16_to_f32(f16_from_f32(static_cast<float>(value))); }

/// Quantizes a row as quant_mode says; returns its scale.
double quantize(const InitRoutingV2& in, std::vector<double>& row, std::size_t expert) {
  if (in.quant_mode == 0) {
    for (double& x : row)
      x = std::clamp(std::nearbyint(f16(f16(f16(x) * f16(in.scale[0])) + f16(in.offset[0]))), -128.0, 127.0);
    return 0;
  }
  const std::size_t smooth = in.scale.size() > row.size() ? expert * row.size() : 0;
  float largest = 0;
  for (std::size_t h = 0; h < row.size(); ++h) {
    if (!in.scale.empty()) row[h] = static_cast<float>(row[h]) * static_cast<float>(in.scale[smooth + h]);
    largest = std::max(largest, std::abs(static_cast<float>(row[h])));
  }
  const float scale = largest / 127.0F;
  for (double& x : row) {
    const float quotient = scale == 0 ? 0 : static_cast<float>(x) / scale;
    x = in.ties_away ? std::round(quotient) : std::nearbyint(quotient);
  }
  return scale;
}

Tensor expert_tokens(const InitRoutingV2& in, const std::vector<std::int64_t>& counts) {
  Tensor out;
  std::int64_t sum = 0;
  const std::int64_t type = in.drop_pad ? 1 : in.tokens_num_type;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    sum += counts[e];
    if (type == 2 && counts[e] != 0)
      out.values.insert(out.values.end(),
                        {static_cast<double>(e) + static_cast<double>(in.first), static_cast<double>(counts[e])});
    else if (type != 2)
      out.values.push_back(static_cast<double>(type == 1 ? counts[e] : sum));
  }
  if (type != 2) return out;
  const std::size_t all = at(2 * in.expert_num), written = std::min(out.values.size() + 2, all);
  out.values.resize(all);
  out.defined.assign(all, false);
  std::fill_n(out.defined.begin(), written, true);
  return out;
}

}  // namespace

std::vector<Tensor> moe_init_routing(const Matrix& x, const Ints& row_idx, const Ints& expert_idx,
                                     std::int64_t active_num) {
  const std::vector<std::size_t> order = sorted_places(expert_idx);
  const std::size_t tokens = x.rows(), top_k = tokens == 0 ? 0 : order.size() / tokens;
  Tensor rows, places{std::vector<double>(order.size()), {}}, experts;
  for (std::size_t j = 0; j < order.size(); ++j) {
    const std::size_t slot = at(row_idx[order[j]]);
    if (j < std::min(at(active_num), tokens) * top_k) append_row(rows.values, x, slot % tokens);
    places.values[slot] = static_cast<double>(j);
    experts.values.push_back(expert_idx[order[j]]);
  }
  return {rows, places, experts};
}

Tensor moe_compute_expert_tokens(const Ints& experts, std::int64_t num_expert) {
  Tensor out;
  for (std::int64_t e = 0; e < num_expert; ++e)
    out.values.push_back(
        static_cast<double>(std::count_if(experts.begin(), experts.end(), [&](auto id) { return id <= e; })));
  return out;
}

std::vector<Tensor> moe_init_routing_v2(const InitRoutingV2& in) {
  const std::size_t slots = in.expert_idx.size(), width = in.x.width;
  const std::size_t rows = in.drop_pad          ? at(in.expert_num * in.expert_capacity)
                           : in.active_num <= 0 ? slots
                                                : std::min(at(in.active_num), slots);
  const CodedRow sizes = in.coder ? in.coder(std::vector<double>(width), 0) : CodedRow{};
  const std::size_t out_width = in.coder                             ? sizes.values.size()
                                : in.mx && in.mx->format.bits() == 4 ? width / 2
                                                                     : width,
                    scale_width = in.coder ? sizes.scale.size()
                                  : in.mx  ? (width + 63) / 64 * 2
                                           : 1;
  Tensor x = undefined(rows * out_width), row_idx = undefined(slots), scale = undefined(rows * scale_width);
  std::vector<std::int64_t> counts(at(in.end - in.first));
  std::size_t active = 0;
  if (in.drop_pad) {  // the rows that are missing are 0
    x.defined.assign(x.values.size(), true);
    scale.defined.assign(scale.values.size(), true);
  }
  if (!in.slots_of_rows)
    for (std::size_t i = 0; i < slots; ++i) set(row_idx, i, -1);
  for (const std::size_t slot : sorted_places(in.expert_idx)) {
    const std::int64_t id = in.expert_idx[slot];
    if (id < in.first || id >= in.end) continue;
    const std::size_t expert = at(id - in.first);
    const std::int64_t in_expert = counts[expert]++;
    if (in.drop_pad && in_expert >= in.expert_capacity) continue;
    const std::size_t row = in.drop_pad ? at(id * in.expert_capacity + in_expert) : active++;
    set(row_idx, in.slots_of_rows ? row : slot, static_cast<double>(in.slots_of_rows ? slot : row));
    if (row >= rows) continue;
    std::vector<double> values;
    append_row(values, in.x, slot / in.top_k);
    if (in.mx) {
      const test::oracle::MxTensor bytes =
          test::oracle::mx_quantize(values, static_cast<std::int64_t>(width), 1, *in.mx);
      values.assign(bytes.y.begin(), bytes.y.end());
      for (std::size_t i = 0; i < scale_width; ++i) set(scale, row * scale_width + i, bytes.scale[i]);
    } else if (in.coder) {
      const CodedRow coded = in.coder(values, expert);
      values = coded.values;
      for (std::size_t i = 0; i < scale_width; ++i) set(scale, row * scale_width + i, coded.scale[i]);
    } else if (in.quant_mode == -1) {
      set(scale, row, in.scale.empty() ? 0 : in.scale[slot / in.top_k]);
    } else {
      set(scale, row, quantize(in, values, expert));
    }
    for (std::size_t h = 0; h < out_width; ++h) set(x, row * out_width + h, values[h]);
  }
  const bool scaled =
      in.mx || (in.coder && scale_width != 0) || in.quant_mode == 1 || (in.quant_mode == -1 && !in.scale.empty());
  return {x, row_idx, expert_tokens(in, counts), scaled ? scale : Tensor{}};
}

std::vector<Tensor> moe_token_permute(const Matrix& tokens, const Ints& indices, std::int64_t rows) {
  const std::vector<std::size_t> order = sorted_places(indices);
  Tensor permuted, places{std::vector<double>(order.size()), {}};
  for (std::size_t j = 0; j < order.size(); ++j) {
    if (j < at(rows)) append_row(permuted.values, tokens, order[j] / (order.size() / tokens.rows()));
    places.values[order[j]] = static_cast<double>(j);
  }
  return {permuted, places};
}

namespace {

/// sum += weight * row, each product and each sum rounded to f32.
void add_row(double* sum, const Matrix& rows, std::size_t row, double weight) {
  for (std::size_t h = 0; h < rows.width; ++h) {
    const volatile float product = static_cast<float>(weight) * static_cast<float>(rows.values[row * rows.width + h]);
    sum[h] = static_cast<float>(sum[h]) + product;
  }
}

}  // namespace

std::vector<double> moe_token_unpermute(const Matrix& rows, const Ints& sorted_indices,
                                        const std::vector<double>& probs, std::size_t top_k) {
  std::vector<double> out(sorted_indices.size() / top_k * rows.width);
  for (std::size_t slot = 0; slot < sorted_indices.size(); ++slot) {
    const std::int32_t row = sorted_indices[slot];
    const double weight = probs.empty() ? 1 : probs[slot];
    if (row < 0 || at(row) >= rows.rows() || weight == 0) continue;
    add_row(&out[slot / top_k * rows.width], rows, at(row), weight);
  }
  return out;
}

std::vector<double> moe_token_unpermute_padded(const Matrix& rows, const Ints& sorted_indices,
                                               const std::vector<double>& probs, std::size_t tokens) {
  std::vector<double> out(tokens * rows.width);
  for (std::size_t row = 0; row < sorted_indices.size(); ++row)
    add_row(&out[at(sorted_indices[row]) * rows.width], rows, row, probs.empty() ? 1 : probs[row]);
  return out;
}

std::vector<Tensor> moe_re_routing(const Matrix& tokens, const std::vector<double>& scales, const Ints& counts,
                                   std::size_t experts) {
  Tensor rows, row_scales, index, sums;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    std::int64_t sum = 0;
    for (std::size_t block = expert; block < counts.size(); block += experts) {
      const std::int64_t first =
          std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
      sum += counts[block];
      for (std::int64_t row = first; row < first + counts[block]; ++row) {
        append_row(rows.values, tokens, at(row));
        if (!scales.empty()) row_scales.values.push_back(scales[at(row)]);
        index.values.push_back(static_cast<double>(row));
      }
    }
    sums.values.push_back(static_cast<double>(sum));
  }
  return {rows, row_scales, index, sums};
}

std::vector<double> moe_finalize_routing(const FinalizeRouting& in) {
  const std::size_t width = in.rows.width;
  std::vector<double> out(in.tokens * width);
  for (std::size_t t = 0; t < in.tokens; ++t)
    for (std::size_t h = 0; h < width; ++h) {
      double& sum = out[t * width + h];
      if (!in.skip1.empty()) sum += in.skip1[t * width + h];
      if (!in.skip2.empty()) sum += in.skip2[t * width + h];
      for (std::size_t k = 0; k < in.top_k; ++k) {
        const std::int32_t row = in.row_of_slot[in.columns ? k * in.tokens + t : t * in.top_k + k];
        const double value = row < 0 ? 0 : in.rows.values[at(row) * width + h];
        const double bias = in.bias.empty() ? 0 : in.bias[at(in.experts[t * in.top_k + k]) * width + h];
        sum += (in.scales.empty() ? 1 : in.scales[t * in.top_k + k]) * (value + bias);
      }
    }
  return out;
}

}  // namespace moecl::test::oracle
