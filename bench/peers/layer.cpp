#include "bench/peers/layer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/check.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::bench {
namespace {

const std::byte* values_of(const WeightMatrix& matrix) { return matrix.plain.data.memory(); }

using MakePeer = std::function<std::unique_ptr<Peer>(std::int64_t n, std::int64_t k)>;

class LayerOfProducts final : public PeerLayer {
 public:
  LayerOfProducts(const ModelCase& model, const MoeWeights& weights, int layers, const MakePeer& make);
  void expect(const Routing& routing, std::vector<std::byte> x) override;
  void forward(std::size_t layer) override;
  std::vector<float> out() const override { return out_; }
  const MoeWeights& weights() const override { return weights_; }

 private:
  const MoeWeights& weights_;
  std::int64_t hidden_, intermediate_;
  std::size_t experts_, element_bytes_;
  std::unique_ptr<Peer> gate_up_, down_;
  std::unique_ptr<GatedSilu> activation_;
  Routing routing_;
  std::vector<std::byte> x_, rows_, activated_;
  std::vector<float> product_, out_;
};

LayerOfProducts::LayerOfProducts(const ModelCase& model, const MoeWeights& weights, int layers, const MakePeer& make)
    : weights_(weights),
      hidden_(model.shape.hidden),
      intermediate_(model.shape.intermediate),
      experts_(weights.experts.size()),
      element_bytes_(size_bytes(model.scheme.plain)) {
  require_plain_mlp(model);
  gate_up_ = make(2 * intermediate_, hidden_);
  down_ = make(hidden_, intermediate_);
  activation_ = gated_silu(model.scheme.bound().arithmetic, intermediate_);
  const std::size_t half = static_cast<std::size_t>(intermediate_ * hidden_) * element_bytes_;
  std::vector<std::byte> stacked(2 * half);
  for (int layer = 0; layer < layers; ++layer)
    for (const ExpertMatrices& expert : weights.experts) {
      std::copy_n(values_of(expert.gate), half, stacked.data());
      std::copy_n(values_of(expert.up), half, stacked.data() + half);
      gate_up_->add_expert(stacked.data());
      down_->add_expert(values_of(expert.down));
    }
}

void LayerOfProducts::expect(const Routing& routing, std::vector<std::byte> x) {
  routing_ = routing, x_ = std::move(x);
  const std::size_t slots = routing.sorted_slots.size();
  rows_.resize(slots * static_cast<std::size_t>(hidden_) * element_bytes_);
  activated_.resize(slots * static_cast<std::size_t>(intermediate_) * element_bytes_);
  product_.resize(slots * static_cast<std::size_t>(std::max(2 * intermediate_, hidden_)));
  out_.resize(static_cast<std::size_t>(routing.tokens * hidden_));
}

void LayerOfProducts::forward(std::size_t layer) {
  const auto slots = static_cast<std::int64_t>(routing_.sorted_slots.size()), top_k = routing_.top_k;
  const std::size_t row_bytes = static_cast<std::size_t>(hidden_) * element_bytes_;
  const std::size_t activated_bytes = static_cast<std::size_t>(intermediate_) * element_bytes_;
#pragma omp parallel for
  for (std::int64_t row = 0; row < slots; ++row) {
    const auto at = static_cast<std::size_t>(row);
    std::memcpy(rows_.data() + at * row_bytes,
                x_.data() + static_cast<std::size_t>(routing_.sorted_slots[at] / top_k) * row_bytes, row_bytes);
  }
  const auto multiply = [&](Peer& peer, const std::byte* a, std::size_t a_bytes, std::int64_t n) {
    std::size_t begin = 0;
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      const auto end = static_cast<std::size_t>(routing_.row_ends[expert]);
      if (end > begin)
        peer.multiply(layer * experts_ + expert, static_cast<std::int64_t>(end - begin), a + begin * a_bytes,
                      product_.data() + begin * static_cast<std::size_t>(n));
      begin = end;
    }
  };
  multiply(*gate_up_, rows_.data(), row_bytes, 2 * intermediate_);
  activation_->apply(slots, product_.data(), activated_.data());
  multiply(*down_, activated_.data(), activated_bytes, hidden_);

  std::vector<std::int64_t> row_of(static_cast<std::size_t>(slots));
  for (std::int64_t row = 0; row < slots; ++row)
    row_of[static_cast<std::size_t>(routing_.sorted_slots[static_cast<std::size_t>(row)])] = row;
  const float weight = 1.0F / static_cast<float>(top_k);
#pragma omp parallel for
  for (std::int64_t token = 0; token < routing_.tokens; ++token) {
    float* const out = out_.data() + token * hidden_;
    std::fill_n(out, hidden_, 0.0F);
    for (std::int64_t choice = 0; choice < top_k; ++choice) {
      const float* const row = product_.data() + row_of[static_cast<std::size_t>(token * top_k + choice)] * hidden_;
      for (std::int64_t i = 0; i < hidden_; ++i) out[i] += weight * row[i];
    }
  }
}

}  // namespace

void require_plain_mlp(const ModelCase& model) {
  if (model.shape.shared_intermediate != 0 || !model.shape.activation.gated ||
      model.shape.activation.function != ActivationFunction::silu)
    fail(ErrorCode::invalid_argument, "{}: a peer's layer has SiLU and no shared experts", model.shape_name);
}

std::unique_ptr<PeerLayer> layer_of_products(const ModelCase& model, const MoeWeights& weights, int layers,
                                             const MakePeer& make) {
  return std::make_unique<LayerOfProducts>(model, weights, layers, make);
}

double layer_element(const ModelCase& model, const MoeWeights& weights, const Routing& routing,
                     const std::vector<double>& x, std::int64_t token, std::int64_t column) {
  const std::int64_t hidden = model.shape.hidden;
  double sum = 0;
  for (std::int64_t choice = 0; choice < routing.top_k; ++choice) {
    const auto id = routing.ids[static_cast<std::size_t>(token * routing.top_k + choice)];
    const ExpertMatrices& expert = weights.experts[static_cast<std::size_t>(id)];
    for (std::int64_t i = 0; i < model.shape.intermediate; ++i) {
      double gate = 0, up = 0;
      for (std::int64_t k = 0; k < hidden; ++k) {
        const double value = x[static_cast<std::size_t>(token * hidden + k)];
        gate += value * test::weight_element(expert.gate, i, k);
        up += value * test::weight_element(expert.up, i, k);
      }
      sum += gate / (1 + std::exp(-gate)) * up * test::weight_element(expert.down, column, i);
    }
  }
  return sum / static_cast<double>(routing.top_k);
}

}  // namespace moecl::bench
