// A layer with weights in the program's memory. A few lines of plain C++ compute the expected output.
#include <moecl/moe_layer.hpp>

#include <numeric>

#include "example.hpp"

namespace {

constexpr std::size_t T = 5, H = 32, I = 48, E = 6, K = 2;  // tokens, hidden size, intermediate size, experts, chosen

struct Expert {
  std::vector<float> gate, up, down;  // [I, H], [I, H], [H, I]
};

double dot(const float* a, const float* b, std::size_t n) { return std::inner_product(a, a + n, b, 0.0); }

/// The sum of the K experts with the largest logits, weighted by a softmax over these logits.
std::vector<float> mixture(const float* x, const std::vector<float>& router, const std::vector<Expert>& experts) {
  std::vector<double> logit(E), sum(H);
  for (std::size_t e = 0; e < E; ++e) logit[e] = dot(&router[e * H], x, H);
  std::vector<std::size_t> order(E);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logit[a] > logit[b]; });
  double total = 0;
  for (std::size_t k = 0; k < K; ++k) total += std::exp(logit[order[k]]);
  for (std::size_t k = 0; k < K; ++k) {
    const Expert& expert = experts[order[k]];
    std::vector<float> inner(I);
    for (std::size_t i = 0; i < I; ++i) {
      const double gate = dot(&expert.gate[i * H], x, H);
      inner[i] = static_cast<float>(gate / (1 + std::exp(-gate)) * dot(&expert.up[i * H], x, H));  // silu
    }
    for (std::size_t h = 0; h < H; ++h)
      sum[h] += std::exp(logit[order[k]]) / total * dot(&expert.down[h * I], inner.data(), I);
  }
  return {sum.begin(), sum.end()};
}

moecl::HostMatrix matrix(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  return {values.data(), moecl::DType::f32, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
}

double run() {
  const std::vector<float> x = random_values(T * H, 1), router = random_values(E * H, 2);
  std::vector<Expert> experts;
  for (std::uint32_t e = 0; e < E; ++e)
    experts.push_back({random_values(I * H, 10 + e), random_values(I * H, 20 + e), random_values(H * I, 30 + e)});

  moecl::MoeShape shape;
  shape.hidden = H;
  shape.intermediate = I;
  shape.experts = E;
  shape.router.top_k = K;
  shape.router.renormalise = true;  // weights of a token sum to 1
  moecl::MoeWeights weights;        // views: `experts` may be freed once the layer is made
  weights.router = matrix(router, E, H);
  for (const Expert& expert : experts) {
    moecl::ExpertMatrices matrices;
    matrices.gate = matrix(expert.gate, I, H);
    matrices.up = matrix(expert.up, I, H);
    matrices.down = matrix(expert.down, H, I);
    weights.experts.push_back(matrices);
  }

  const auto context = moecl::Context::create({moecl::select_devices().front()});
  const moecl::Stream stream(*context);
  const moecl::MoeLayer layer(stream, shape, weights);
  const moecl::DeviceTensor input(*context, moecl::DType::f32, {T, H}), out(*context, moecl::DType::f32, {T, H});
  const moecl::Buffer workspace(*context, layer.workspace_bytes(T));
  write(stream, input, x);
  moecl::MoeLayer::Forward forward;
  forward.x = input;
  forward.out = out;
  forward.workspace = workspace.view();
  layer.forward(stream, forward);

  std::vector<float> expected;
  for (std::size_t t = 0; t < T; ++t) {
    const std::vector<float> row = mixture(&x[t * H], router, experts);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  return relative_error(read<float>(stream, out), expected);
}

}  // namespace

int main() { return run_example(1e-5, run); }
