#pragma once
// Computes a family's MoE block in double precision, from a checkpoint's tensors by their published names and from
// published formulas.
#include <moecl/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

using Row = std::vector<double>;

constexpr std::size_t reference_hidden = 24;

struct Choice {
  std::size_t expert;
  double weight;
};
using Route = std::function<std::vector<Choice>(const Row& logits, const Row& bias)>;

inline Row softmax(Row x) {
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value);
  for (double& value : x) value /= sum;
  return x;
}
inline Row sigmoid(Row x) {
  for (double& value : x) value = 1 / (1 + std::exp(-value));
  return x;
}
inline std::vector<std::size_t> best(const Row& x, std::size_t count) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  order.resize(count);
  return order;
}
inline std::vector<Choice> weighted(const Row& scores, const std::vector<std::size_t>& experts, bool norm,
                                    double epsilon, double scale) {
  double sum = epsilon;
  for (const std::size_t e : experts) sum += scores[e];
  std::vector<Choice> chosen;
  for (const std::size_t e : experts) chosen.push_back({e, scores[e] / (norm ? sum : 1) * scale});
  return chosen;
}
/// Mixtral, Qwen, Jamba, Hunyuan: the best of a softmax over all experts.
inline Route softmax_top(std::size_t k, bool norm) {
  return [=](const Row& logits, const Row&) {
    const Row scores = softmax(logits);
    return weighted(scores, best(scores, k), norm, 0, 1);
  };
}
/// DeepSeek-V3: sigmoid scores. Experts are chosen with a bias, among the groups with the largest sum of their two best
/// scores, and weighted without the bias.
inline Route sigmoid_top(std::size_t k, double epsilon, double scale, std::size_t groups = 1, std::size_t kept = 1,
                         bool norm = true) {
  return [=](const Row& logits, const Row& bias) {
    const Row scores = sigmoid(logits);
    Row choice = scores;
    for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
    const std::size_t size = choice.size() / groups;
    Row group_scores;
    for (std::size_t g = 0; g < groups; ++g) {
      const Row group(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                      choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      double score = 0;
      for (const std::size_t e : best(group, 2)) score += group[e];
      group_scores.push_back(score);
    }
    const std::vector<std::size_t> stay = best(group_scores, kept);
    for (std::size_t e = 0; e < choice.size(); ++e)
      if (std::find(stay.begin(), stay.end(), e / size) == stay.end()) choice[e] = -INFINITY;
    return weighted(scores, best(choice, k), norm, epsilon, scale);
  };
}

/// How a network's matrices are stored in the file.
enum class Stored : std::uint8_t { each, stacked, stacked_halves, stacked_halves_transposed, halves, flat };
struct Network {
  const char *gate = "", *up = "", *down = "";  ///< "#" stands for the expert
  Stored stored = Stored::each;
  std::size_t width = 0;
  bool biased = false;  ///< a ".bias" beside each ".weight"
  bool gated = true;    ///< silu(gate x) * up x; false: relu(up x)^2
};

struct Family {
  const char* name;
  nlohmann::json config;
  int layer;
  const char *router, *bias;
  Network experts, shared;
  const char* shared_gate;
  Route route;
};

constexpr Network gate_up_down(const char* gate, const char* up, const char* down, std::size_t width,
                               Stored stored = Stored::each) {
  return {gate, up, down, stored, width};
}
constexpr Network ungated(const char* up, const char* down, std::size_t width) {
  Network network = gate_up_down("", up, down, width);
  network.gated = false;
  return network;
}

/// Networks that several families have: experts in layer 1, experts in layer 0, shared experts in layer 1.
inline constexpr Network mlp =
    gate_up_down("model.layers.1.mlp.experts.#.gate_proj.weight", "model.layers.1.mlp.experts.#.up_proj.weight",
                 "model.layers.1.mlp.experts.#.down_proj.weight", 10);
inline constexpr Network mlp_0 =
    gate_up_down("model.layers.0.mlp.experts.#.gate_proj.weight", "model.layers.0.mlp.experts.#.up_proj.weight",
                 "model.layers.0.mlp.experts.#.down_proj.weight", 10);
inline constexpr Network shared_experts = gate_up_down("model.layers.1.mlp.shared_experts.gate_proj.weight",
                                                       "model.layers.1.mlp.shared_experts.up_proj.weight",
                                                       "model.layers.1.mlp.shared_experts.down_proj.weight", 20);
constexpr Network with_biases(Network network) {
  network.biased = true;
  return network;
}

/// A config.json of three layers.
inline nlohmann::json config(const char* model_type, const nlohmann::json& fields) {
  nlohmann::json whole = {
      {"model_type", model_type}, {"hidden_size", reference_hidden}, {"num_hidden_layers", 3}, {"hidden_act", "silu"}};
  whole.update(fields);
  return whole;
}

inline std::string at(std::string name, std::size_t expert) {
  const auto found = name.find('#');
  return found == name.npos ? name : name.replace(found, 1, std::to_string(expert));
}

class Block {
 public:
  Block(const std::string& dir, const Family& family)
      : file_(SafetensorsFile::open(dir + "/model.safetensors")), family_(family) {}

  Row forward(const Row& x) const {
    const Row router = values(family_.router), bias = *family_.bias == 0 ? Row() : values(family_.bias);
    Row out(reference_hidden);
    for (const Choice& choice : family_.route(product(router, x, 0, 1), bias))
      add(network(family_.experts, choice.expert, x), choice.weight, out);
    if (family_.shared.width == 0) return out;
    const double gate = *family_.shared_gate == 0 ? 1 : sigmoid(product(values(family_.shared_gate), x, 0, 1))[0];
    add(network(family_.shared, 0, x), gate, out);
    return out;
  }

 private:
  Row values(const std::string& name) const {
    const HostTensor tensor = file_.tensor(name).in_memory();
    const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data.memory());
    return decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
  }
  static void add(const Row& from, double weight, Row& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  }
  /// Multiplies x with rows first, first + step, ... of a matrix that has x.size() columns.
  static Row product(const Row& matrix, const Row& x, std::size_t first, std::size_t step) {
    Row out;
    for (std::size_t r = first; (r + 1) * x.size() <= matrix.size(); r += step)
      out.push_back(
          std::inner_product(x.begin(), x.end(), matrix.begin() + static_cast<std::ptrdiff_t>(r * x.size()), 0.0));
    return out;
  }
  /// An expert's matrix [rows, columns] from a tensor of all experts, which may store it transposed.
  static Row slice(const Row& all, std::size_t expert, std::size_t rows, std::size_t columns, bool transposed) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(expert * rows * columns);
    const Row stored(begin, begin + static_cast<std::ptrdiff_t>(rows * columns));
    Row matrix(stored.size());
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        matrix[r * columns + c] = transposed ? stored[c * rows + r] : stored[r * columns + c];
    return matrix;
  }
  Row network(const Network& of, std::size_t expert, const Row& x) const {
    Row gate, up, down;
    const bool transposed = of.stored == Stored::stacked_halves_transposed;
    if (of.stored == Stored::each || of.stored == Stored::stacked || of.stored == Stored::flat) {
      const std::size_t e = of.stored == Stored::each ? 0 : expert;
      if (of.gated) gate = slice(values(at(of.gate, expert)), e, of.width, reference_hidden, false);
      up = slice(values(at(of.up, expert)), e, of.width, reference_hidden, false);
      down = slice(values(at(of.down, expert)), e, reference_hidden, of.width, of.stored == Stored::flat);
    } else {
      const Row both = slice(values(of.gate), expert, 2 * of.width, reference_hidden, transposed);
      const auto middle = both.begin() + static_cast<std::ptrdiff_t>(of.width * reference_hidden);
      gate.assign(both.begin(), middle);
      up.assign(middle, both.end());
      down = slice(values(of.down), expert, reference_hidden, of.width, transposed);
    }
    const auto biased = [&](const char* name, Row y) {
      const std::string weight = name;
      if (of.biased) add(values(weight.substr(0, weight.size() - 6) + "bias"), 1, y);
      return y;
    };
    const Row u = biased(of.up, product(up, x, 0, 1));
    Row inner(of.width);
    if (of.gated) {
      const Row g = biased(of.gate, product(gate, x, 0, 1));
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
    } else {
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = u[i] > 0 ? u[i] * u[i] : 0;
    }
    return biased(of.down, product(down, inner, 0, 1));
  }

  SafetensorsFile file_;
  const Family& family_;
};

}  // namespace moecl::test
