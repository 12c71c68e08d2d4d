// Families without a golden: a random checkpoint in the released layout, run, against the block computed from the
// file's tensors by their published names and from the family's published formulas, in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/random_checkpoint.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "host/model_families.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;
using Row = std::vector<double>;

constexpr std::size_t hidden = 24, tokens = 7;

struct Choice {
  std::size_t expert;
  double weight;
};
using Route = std::function<std::vector<Choice>(const Row& logits, const Row& bias)>;

Row softmax(Row x) {
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value);
  for (double& value : x) value /= sum;
  return x;
}
Row sigmoid(Row x) {
  for (double& value : x) value = 1 / (1 + std::exp(-value));
  return x;
}
std::vector<std::size_t> best(const Row& x, std::size_t count) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  order.resize(count);
  return order;
}
std::vector<Choice> weighted(const Row& scores, const std::vector<std::size_t>& experts, bool norm, double epsilon,
                             double scale) {
  double sum = epsilon;
  for (const std::size_t e : experts) sum += scores[e];
  std::vector<Choice> chosen;
  for (const std::size_t e : experts) chosen.push_back({e, scores[e] / (norm ? sum : 1) * scale});
  return chosen;
}
/// Mixtral, Qwen, Jamba, Hunyuan: the best of a softmax over all experts.
Route softmax_top(std::size_t k, bool norm) {
  return [=](const Row& logits, const Row&) {
    const Row scores = softmax(logits);
    return weighted(scores, best(scores, k), norm, 0, 1);
  };
}
/// DeepSeek-V3's: sigmoid, chosen with a bias among the groups whose best two are the best, weighted without it.
Route sigmoid_top(std::size_t k, double epsilon, double scale, std::size_t groups = 1, std::size_t kept = 1,
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

/// How a network's matrices stand in the file.
enum class Stored : std::uint8_t { each, stacked, stacked_halves, stacked_halves_transposed, halves };
struct Network {
  const char *gate = "", *up = "", *down = "";  ///< "#" stands for the expert
  Stored stored = Stored::each;
  std::size_t width = 0;
  bool biased = false;  ///< a ".bias" beside each ".weight"
};

struct Family {
  const char* name;
  json config;
  int layer;
  const char *router, *bias;
  Network experts, shared;
  const char* shared_gate;
  Route route;
};

Network gate_up_down(const char* gate, const char* up, const char* down, std::size_t width,
                     Stored stored = Stored::each) {
  return {gate, up, down, stored, width, false};
}

std::string at(std::string name, std::size_t expert) {
  const auto found = name.find('#');
  return found == name.npos ? name : name.replace(found, 1, std::to_string(expert));
}

class Block {
 public:
  Block(const std::string& dir, const Family& family)
      : file_(SafetensorsFile::open(dir + "/model.safetensors")), family_(family) {}

  Row forward(const Row& x) const {
    const Row router = values(family_.router), bias = *family_.bias == 0 ? Row() : values(family_.bias);
    Row out(hidden);
    for (const Choice& choice : family_.route(product(router, x, 0, 1), bias))
      add(network(family_.experts, choice.expert, x), choice.weight, out);
    if (family_.shared.width == 0) return out;
    const double gate = *family_.shared_gate == 0 ? 1 : sigmoid(product(values(family_.shared_gate), x, 0, 1))[0];
    add(network(family_.shared, 0, x), gate, out);
    return out;
  }

 private:
  Row values(const std::string& name) const {
    const HostTensor tensor = file_.tensor(name);
    const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data);
    return decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
  }
  static void add(const Row& from, double weight, Row& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  }
  /// Rows first, first + step, ... of a matrix with x.size() columns.
  static Row product(const Row& matrix, const Row& x, std::size_t first, std::size_t step) {
    Row out;
    for (std::size_t r = first; (r + 1) * x.size() <= matrix.size(); r += step)
      out.push_back(
          std::inner_product(x.begin(), x.end(), matrix.begin() + static_cast<std::ptrdiff_t>(r * x.size()), 0.0));
    return out;
  }
  /// An expert's matrix [rows, columns] of a tensor of all experts, transposed to that if it is not.
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
    if (of.stored == Stored::each || of.stored == Stored::stacked) {
      const std::size_t e = of.stored == Stored::stacked ? expert : 0;
      gate = slice(values(at(of.gate, expert)), e, of.width, hidden, false);
      up = slice(values(at(of.up, expert)), e, of.width, hidden, false);
      down = slice(values(at(of.down, expert)), e, hidden, of.width, false);
    } else {
      const Row both = slice(values(of.gate), expert, 2 * of.width, hidden, transposed);
      const auto middle = both.begin() + static_cast<std::ptrdiff_t>(of.width * hidden);
      gate.assign(both.begin(), middle);
      up.assign(middle, both.end());
      down = slice(values(of.down), expert, hidden, of.width, transposed);
    }
    const auto biased = [&](const char* name, Row y) {
      const std::string weight = name;
      if (of.biased) add(values(weight.substr(0, weight.size() - 6) + "bias"), 1, y);
      return y;
    };
    const Row g = biased(of.gate, product(gate, x, 0, 1)), u = biased(of.up, product(up, x, 0, 1));
    Row inner(of.width);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
    return biased(of.down, product(down, inner, 0, 1));
  }

  SafetensorsFile file_;
  const Family& family_;
};

json config(const char* model_type, const json& fields) {
  json whole = {{"model_type", model_type}, {"hidden_size", hidden}, {"num_hidden_layers", 3}, {"hidden_act", "silu"}};
  whole.update(fields);
  return whole;
}

std::vector<Family> families() {
  const Network mlp =
      gate_up_down("model.layers.1.mlp.experts.#.gate_proj.weight", "model.layers.1.mlp.experts.#.up_proj.weight",
                   "model.layers.1.mlp.experts.#.down_proj.weight", 10);
  const Network mlp_0 =
      gate_up_down("model.layers.0.mlp.experts.#.gate_proj.weight", "model.layers.0.mlp.experts.#.up_proj.weight",
                   "model.layers.0.mlp.experts.#.down_proj.weight", 10);
  const auto shared = [](const char* gate, const char* up, const char* down, std::size_t width) {
    return gate_up_down(gate, up, down, width);
  };
  const Network shared_experts =
      shared("model.layers.1.mlp.shared_experts.gate_proj.weight", "model.layers.1.mlp.shared_experts.up_proj.weight",
             "model.layers.1.mlp.shared_experts.down_proj.weight", 20);
  Network ernie_shared = shared_experts;
  ernie_shared.biased = true;
  return {
      {"qwen3_next",
       config("qwen3_next", {{"num_experts", 9},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"shared_expert_intermediate_size", 13}}),
       0, "model.layers.0.mlp.gate.weight", "", mlp_0,
       shared("model.layers.0.mlp.shared_expert.gate_proj.weight", "model.layers.0.mlp.shared_expert.up_proj.weight",
              "model.layers.0.mlp.shared_expert.down_proj.weight", 13),
       "model.layers.0.mlp.shared_expert_gate.weight", softmax_top(3, true)},
      {"deepseek_v2 with norm_topk_prob",
       config("deepseek_v2", {{"n_routed_experts", 12},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"n_shared_experts", 2},
                              {"norm_topk_prob", true},
                              {"routed_scaling_factor", 16.0},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "", mlp, shared_experts, "",
       [](const Row& logits, const Row&) {
         const Row scores = softmax(logits);
         return weighted(scores, best(scores, 3), true, 0, 16);
       }},
      {"kimi_k2",
       config("kimi_k2", {{"n_routed_experts", 12},
                          {"num_experts_per_tok", 3},
                          {"moe_intermediate_size", 10},
                          {"n_shared_experts", 2},
                          {"n_group", 1},
                          {"topk_group", 1},
                          {"first_k_dense_replace", 1},
                          {"routed_scaling_factor", 2.827}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.827)},
      {"dots1",
       config("dots1", {{"n_routed_experts", 12},
                        {"num_experts_per_tok", 3},
                        {"moe_intermediate_size", 10},
                        {"n_shared_experts", 2},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"norm_topk_prob", true},
                        {"routed_scaling_factor", 2.5}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5)},
      {"exaone_moe",
       config("exaone_moe", {{"num_experts", 12},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"num_shared_experts", 2},
                             {"n_group", 4},
                             {"topk_group", 2},
                             {"mlp_layer_types", {"dense", "sparse", "sparse"}}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5, 4, 2)},
      {"glm4_moe_lite",
       config("glm4_moe_lite", {{"n_routed_experts", 12},
                                {"num_experts_per_tok", 3},
                                {"moe_intermediate_size", 10},
                                {"n_shared_experts", 2}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 1.8)},
      {"glm_moe_dsa",
       config("glm_moe_dsa", {{"n_routed_experts", 12},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"n_shared_experts", 2},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5)},
      {"solar_open",
       config("solar_open", {{"n_routed_experts", 12},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"n_shared_experts", 0},
                             {"norm_topk_prob", false}}),
       0,
       "model.layers.0.mlp.gate.weight",
       "model.layers.0.mlp.gate.e_score_correction_bias",
       mlp_0,
       {},
       "",
       sigmoid_top(3, 1e-20, 1, 1, 1, false)},
      {"bailing_hybrid",
       config("bailing_hybrid", {{"num_experts", 16},
                                 {"num_experts_per_token", 4},
                                 {"moe_intermediate_size", 10},
                                 {"num_shared_experts", 2},
                                 {"num_expert_group", 8},
                                 {"mlp_layer_types", {"dense", "sparse", "sparse"}}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.expert_bias", mlp, shared_experts, "",
       sigmoid_top(4, 1e-20, 2.5, 8, 4)},
      {"bailing_moe of the second generation",
       config("bailing_moe", {{"num_experts", 16},
                              {"num_experts_per_tok", 4},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 2},
                              {"n_group", 8},
                              {"topk_group", 4},
                              {"norm_topk_prob", true},
                              {"score_function", "sigmoid"},
                              {"moe_router_enable_expert_bias", true},
                              {"routed_scaling_factor", 2.5},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.expert_bias", mlp, shared_experts, "",
       sigmoid_top(4, 1e-20, 2.5, 8, 4)},
      {"bailing_moe of the first generation",
       config("bailing_moe", {{"num_experts", 8},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 0},
                              {"norm_topk_prob", true}}),
       0,
       "model.layers.0.mlp.gate.weight",
       "",
       mlp_0,
       {},
       "",
       softmax_top(3, true)},
      {"afmoe",
       config("afmoe", {{"num_experts", 9},
                        {"num_experts_per_tok", 3},
                        {"moe_intermediate_size", 10},
                        {"num_shared_experts", 2},
                        {"num_dense_layers", 1},
                        {"route_scale", 2.826}}),
       1, "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.expert_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.826)},
      {"hy_v3",
       config(
           "hy_v3",
           {{"num_experts", 9}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 10}, {"num_shared_experts", 2}}),
       1, "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.expert_bias", mlp,
       shared("model.layers.1.mlp.shared_mlp.gate_proj.weight", "model.layers.1.mlp.shared_mlp.up_proj.weight",
              "model.layers.1.mlp.shared_mlp.down_proj.weight", 20),
       "", sigmoid_top(3, 1e-20, 2.826)},
      {"kimi_linear",
       config("kimi_linear", {{"num_experts", 9},
                              {"num_experts_per_token", 3},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 2},
                              {"moe_renormalize", true},
                              {"num_expert_group", 1},
                              {"moe_router_activation_func", "sigmoid"},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.block_sparse_moe.gate.weight", "model.layers.1.block_sparse_moe.gate.e_score_correction_bias",
       gate_up_down("model.layers.1.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.1.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.1.block_sparse_moe.experts.#.w2.weight", 10),
       shared("model.layers.1.block_sparse_moe.shared_experts.gate_proj.weight",
              "model.layers.1.block_sparse_moe.shared_experts.up_proj.weight",
              "model.layers.1.block_sparse_moe.shared_experts.down_proj.weight", 20),
       "", sigmoid_top(3, 1e-20, 2.446)},
      {"minimax",
       config("minimax", {{"num_local_experts", 8}, {"num_experts_per_tok", 2}, {"intermediate_size", 10}}),
       0,
       "model.layers.0.block_sparse_moe.gate.weight",
       "",
       gate_up_down("model.layers.0.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w2.weight", 10),
       {},
       "",
       softmax_top(2, true)},
      {"minimax_m2",
       config("minimax_m2", {{"num_local_experts", 8}, {"num_experts_per_tok", 3}, {"intermediate_size", 10}}),
       0,
       "model.layers.0.block_sparse_moe.gate.weight",
       "model.layers.0.block_sparse_moe.e_score_correction_bias",
       gate_up_down("model.layers.0.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w2.weight", 10),
       {},
       "",
       sigmoid_top(3, 0, 1)},
      {"lfm2_moe",
       config("lfm2_moe", {{"num_experts", 8},
                           {"num_experts_per_tok", 3},
                           {"moe_intermediate_size", 10},
                           {"num_dense_layers", 2},
                           {"routed_scaling_factor", 1.5}}),
       2,
       "model.layers.2.feed_forward.gate.weight",
       "model.layers.2.feed_forward.expert_bias",
       gate_up_down("model.layers.2.feed_forward.experts.#.w1.weight",
                    "model.layers.2.feed_forward.experts.#.w3.weight",
                    "model.layers.2.feed_forward.experts.#.w2.weight", 10),
       {},
       "",
       sigmoid_top(3, 1e-6, 1.5)},
      {"ernie4_5_moe with biases of the shared experts",
       config("ernie4_5_moe", {{"moe_num_experts", 8},
                               {"moe_k", 3},
                               {"moe_intermediate_size", 10},
                               {"moe_num_shared_experts", 2},
                               {"use_bias", true},
                               {"moe_layer_start_index", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.moe_statics.e_score_correction_bias", mlp, ernie_shared,
       "",
       [](const Row& logits, const Row& bias) {
         const Row scores = softmax(logits);
         Row choice = scores;
         for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
         return weighted(scores, best(choice, 3), true, 0, 1);
       }},
      {"hunyuan_v1_moe with lists",
       config("hunyuan_v1_moe", {{"num_experts", 8},
                                 {"moe_topk", {3, 3, 3}},
                                 {"intermediate_size", 10},
                                 {"moe_intermediate_size", {10, 10, 10}},
                                 {"num_shared_expert", {1, 1, 1}}}),
       0, "model.layers.0.mlp.gate.wg.weight", "", mlp_0,
       shared("model.layers.0.mlp.shared_mlp.gate_proj.weight", "model.layers.0.mlp.shared_mlp.up_proj.weight",
              "model.layers.0.mlp.shared_mlp.down_proj.weight", 10),
       "", softmax_top(3, true)},
      {"jamba",
       config("jamba", {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"intermediate_size", 10}}),
       1,
       "model.layers.1.feed_forward.router.weight",
       "",
       gate_up_down("model.layers.1.feed_forward.experts.#.gate_proj.weight",
                    "model.layers.1.feed_forward.experts.#.up_proj.weight",
                    "model.layers.1.feed_forward.experts.#.down_proj.weight", 10),
       {},
       "",
       softmax_top(2, false)},
      {"granitemoeshared",
       config("granitemoeshared", {{"num_local_experts", 8},
                                   {"num_experts_per_tok", 3},
                                   {"intermediate_size", 10},
                                   {"shared_intermediate_size", 13},
                                   {"logits_scaling", 6.0}}),
       0, "model.layers.0.block_sparse_moe.router.layer.weight", "",
       gate_up_down("model.layers.0.block_sparse_moe.input_linear.weight", "",
                    "model.layers.0.block_sparse_moe.output_linear.weight", 10, Stored::stacked_halves),
       gate_up_down("model.layers.0.shared_mlp.input_linear.weight", "",
                    "model.layers.0.shared_mlp.output_linear.weight", 13, Stored::halves),
       "",
       [](const Row& logits, const Row&) {
         const std::vector<std::size_t> experts = best(logits, 3);
         Row chosen;
         for (const std::size_t e : experts) chosen.push_back(logits[e]);
         chosen = softmax(chosen);
         std::vector<Choice> choices;
         for (std::size_t i = 0; i < experts.size(); ++i) choices.push_back({experts[i], chosen[i]});
         return choices;
       }},
      {"step3_vl",
       {{"model_type", "step3_vl"},
        {"text_config", config("step3_text", {{"moe_num_experts", 8},
                                              {"moe_top_k", 3},
                                              {"moe_intermediate_size", 10},
                                              {"norm_expert_weight", true},
                                              {"share_expert_dim", 13},
                                              {"moe_layers_enum", "1,2"}})}},
       1,
       "model.layers.1.moe.gate.weight",
       "",
       gate_up_down("model.layers.1.moe.gate_proj.weight", "model.layers.1.moe.up_proj.weight",
                    "model.layers.1.moe.down_proj.weight", 10, Stored::stacked),
       shared("model.layers.1.share_expert.gate_proj.weight", "model.layers.1.share_expert.up_proj.weight",
              "model.layers.1.share_expert.down_proj.weight", 13),
       "",
       softmax_top(3, true)},
      {"qwen3_vl_moe",
       {{"model_type", "qwen3_vl_moe"},
        {"text_config",
         config("qwen3_vl_moe_text", {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 10}})}},
       0,
       "model.language_model.layers.0.mlp.gate.weight",
       "",
       gate_up_down("model.language_model.layers.0.mlp.experts.gate_up_proj", "",
                    "model.language_model.layers.0.mlp.experts.down_proj", 10, Stored::stacked_halves_transposed),
       {},
       "",
       softmax_top(3, true)},
      {"qwen3_5_moe",
       {{"model_type", "qwen3_5_moe"},
        {"text_config", config("qwen3_5_moe_text", {{"num_experts", 8},
                                                    {"num_experts_per_tok", 3},
                                                    {"moe_intermediate_size", 10},
                                                    {"shared_expert_intermediate_size", 13}})}},
       0,
       "model.language_model.layers.0.mlp.gate.weight",
       "",
       gate_up_down("model.language_model.layers.0.mlp.experts.gate_up_proj", "",
                    "model.language_model.layers.0.mlp.experts.down_proj", 10, Stored::stacked_halves),
       shared("model.language_model.layers.0.mlp.shared_expert.gate_proj.weight",
              "model.language_model.layers.0.mlp.shared_expert.up_proj.weight",
              "model.language_model.layers.0.mlp.shared_expert.down_proj.weight", 13),
       "model.language_model.layers.0.mlp.shared_expert_gate.weight",
       softmax_top(3, true)},
  };
}

TEST(FamiliesTest, EveryRowOfTheTableIsRunAgainstAReference) {
  std::set<const ModelFamily*> tested;
  const auto add = [&](const json& whole) {
    const auto* text = whole.contains("text_config") ? &whole["text_config"] : &whole;
    tested.insert(find_family((*text)["model_type"].get<std::string>()));
  };
  for (const Family& family : families()) add(family.config);
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens")))
    add(json::parse(read_text(entry.path() / "config.json")));
  for (const ModelFamily& family : model_families()) EXPECT_TRUE(tested.contains(&family)) << family.model_types[0];
}

class FamilyLayersTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(FamilyLayersTest);

TEST_P(FamilyLayersTest, ComputeWhatTheFamilysFormulasSay) {
  const Row input = rounded(DType::f32, normal(tokens * hidden, 5));
  std::uint64_t seed = 1;
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    write_random_checkpoint(dir.file("model"), {family.config.dump(), 1, 0, DType::f32, seed++});
    const Checkpoint checkpoint = Checkpoint::open(dir.file("model"));
    ASSERT_EQ(checkpoint.config().first_moe_layer(), family.layer);
    const MoeLayerConfig config = checkpoint.config().layer(family.layer);
    const Block block(dir.file("model"), family);
    Row expected;
    for (std::size_t t = 0; t < tokens; ++t) {
      const Row out = block.forward({input.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                                     input.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden)});
      expected.insert(expected.end(), out.begin(), out.end());
    }

    const MoeLayer layer(device().stream, config.shape, find_layer_weights(checkpoint, config));
    EXPECT_LE(relative_error(run_layer(device(), layer, input).out, expected), 1e-5);
  }
}

}  // namespace
}  // namespace moecl::test
