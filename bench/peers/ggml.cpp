#include <algorithm>
#include <deque>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <map>
#include <omp.h>

#include "bench/peers/layer.hpp"
#include "runtime/check.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::bench {
namespace {

const std::map<std::string, ggml_type>& type_of_scheme() {
  static const std::map<std::string, ggml_type> types = {
      {"f16", GGML_TYPE_F16},        {"bf16", GGML_TYPE_BF16},       {"int8_w8a8", GGML_TYPE_Q8_0},
      {"int4_w4a8", GGML_TYPE_Q4_0}, {"int4_w4a16", GGML_TYPE_Q4_0}, {"mxfp4_w4a16", GGML_TYPE_MXFP4}};
  return types;
}

constexpr WeightMatrix ExpertMatrices::*matrices[] = {&ExpertMatrices::gate, &ExpertMatrices::up,
                                                      &ExpertMatrices::down};

ggml_context_ptr context_of(std::size_t tensors, std::size_t graphs) {
  return ggml_context_ptr(
      ggml_init({tensors * ggml_tensor_overhead() + graphs * ggml_graph_overhead(), nullptr, true}));
}

/// Chooses as llama.cpp does: the first kind of memory whose layout of such weights the CPU can multiply by expert.
ggml_backend_buffer_type_t memory_for(ggml_backend_dev_t cpu, ggml_type type, std::int64_t n, std::int64_t k) {
  const auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
  const ggml_context_ptr context = context_of(4, 0);
  ggml_tensor* const weights = ggml_new_tensor_3d(context.get(), type, k, n, 2);
  ggml_tensor* const product =
      ggml_mul_mat_id(context.get(), weights, ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, k, 2, 512),
                      ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 2, 512));
  for (ggml_backend_buffer_type_t* kind = extra(cpu); kind != nullptr && *kind != nullptr; ++kind) {
    const ggml_backend_buffer_ptr none(ggml_backend_buft_alloc_buffer(*kind, 0));
    weights->buffer = none.get();
    if (ggml_backend_dev_supports_op(cpu, product)) return *kind;
  }
  return ggml_backend_dev_buffer_type(cpu);
}

class GgmlLayer final : public PeerLayer {
 public:
  GgmlLayer(const ModelCase& model, const MoeWeights& weights, int layers)
      : hidden_(model.shape.hidden),
        intermediate_(model.shape.intermediate),
        type_(type_of_scheme().at(model.scheme.name)),
        plain_(model.scheme.plain),
        weights_(weights),
        context_(context_of(2 * static_cast<std::size_t>(layers), 0)) {
    ggml_backend_cpu_set_n_threads(cpu_.get(), omp_get_max_threads());
    if (model.scheme.quant.weights.quantized()) quantize();
    const std::int64_t experts = model.shape.experts;
    for (int layer = 0; layer < layers; ++layer) {
      gate_up_.push_back(load(2 * intermediate_, hidden_, experts, {0, 1}));
      down_.push_back(load(hidden_, intermediate_, experts, {2}));
    }
  }

  void expect(const Routing& routing, std::vector<std::byte> x) override {
    const std::int64_t tokens = routing.tokens, top_k = routing.top_k;
    inputs_ = context_of(3, 0);
    ggml_tensor *const rows = ggml_new_tensor_3d(inputs_.get(), GGML_TYPE_F32, hidden_, 1, tokens),
                       *const ids = ggml_new_tensor_2d(inputs_.get(), GGML_TYPE_I32, top_k, tokens),
                       *const shares = ggml_new_tensor_3d(inputs_.get(), GGML_TYPE_F32, 1, top_k, tokens);
    input_memory_.reset(ggml_backend_alloc_ctx_tensors(inputs_.get(), cpu_.get()));
    const auto* bytes = reinterpret_cast<const unsigned char*>(x.data());
    const std::vector<double> values = test::decode(plain_, {bytes, bytes + x.size()});
    set(rows, std::vector<float>(values.begin(), values.end()));
    set(ids, routing.ids);
    set(shares, std::vector<float>(routing.ids.size(), 1 / static_cast<float>(top_k)));

    const auto tensors = static_cast<std::size_t>(8 + 2 * top_k);
    graph_context_ = context_of(tensors * gate_up_.size(), gate_up_.size());
    graphs_.clear(), outs_.clear();
    ggml_context* const made = graph_context_.get();
    for (std::size_t layer = 0; layer < gate_up_.size(); ++layer) {
      ggml_tensor* const activated = ggml_swiglu(made, ggml_mul_mat_id(made, gate_up_[layer], rows, ids));
      ggml_tensor* const chosen = ggml_mul(made, ggml_mul_mat_id(made, down_[layer], activated, ids), shares);
      ggml_tensor* sum = nullptr;
      for (std::int64_t choice = 0; choice < top_k; ++choice) {
        ggml_tensor* const one = ggml_view_2d(made, chosen, hidden_, tokens, chosen->nb[2],
                                              static_cast<std::size_t>(choice) * chosen->nb[1]);
        sum = sum == nullptr ? one : ggml_add(made, sum, one);
      }
      ggml_set_output(sum);
      outs_.push_back(sum);
      graphs_.push_back(ggml_new_graph(made));
      ggml_build_forward_expand(graphs_.back(), sum);
      if (!ggml_gallocr_alloc_graph(between_.get(), graphs_.back())) fail(ErrorCode::out_of_memory, "ggml: no memory");
    }
  }

  void forward(std::size_t layer) override {
    if (ggml_backend_graph_compute(cpu_.get(), graphs_[layer]) != GGML_STATUS_SUCCESS)
      fail(ErrorCode::device_error, "ggml: the layer failed");
    last_ = layer;
  }

  std::vector<float> out() const override {
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(outs_[last_])));
    ggml_backend_tensor_get(outs_[last_], values.data(), 0, values.size() * sizeof(float));
    return values;
  }
  const MoeWeights& weights() const override { return weights_; }

 private:
  template <class T>
  static void set(ggml_tensor* tensor, const std::vector<T>& values) {
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(T));
  }

  /// Quantizes the first expert's matrices; with quantization all experts have the same matrices.
  void quantize() {
    for (WeightMatrix ExpertMatrices::*const which : matrices) {
      const WeightMatrix& matrix = weights_.experts.front().*which;
      const std::int64_t n = matrix.rows(), k = matrix.columns();
      std::vector<float>& values = values_.emplace_back();
      for (std::int64_t row = 0; row < n; ++row)
        for (std::int64_t column = 0; column < k; ++column)
          values.push_back(static_cast<float>(test::weight_element(matrix, row, column)));
      std::vector<std::byte>& codes = codes_.emplace_back(static_cast<std::size_t>(n) * ggml_row_size(type_, k));
      ggml_quantize_chunk(type_, values.data(), codes.data(), 0, n, k, nullptr);
      ggml_get_type_traits(type_)->to_float(codes.data(), values.data(), n * k);
      const WeightMatrix held = HostMatrix{values.data(), DType::f32, n, k};
      for (ExpertMatrices& expert : weights_.experts) expert.*which = held;
    }
  }

  /// Loads the matrices that `parts` numbers, of all experts, one above the other.
  ggml_tensor* load(std::int64_t n, std::int64_t k, std::int64_t experts, const std::vector<std::size_t>& parts) {
    ggml_tensor* const tensor = ggml_new_tensor_3d(context_.get(), type_, k, n, experts);
    ggml_backend_buffer_type_t kind = memory_for(ggml_backend_get_device(cpu_.get()), type_, n, k);
    memory_.emplace_back(ggml_backend_buft_alloc_buffer(kind, ggml_backend_buft_get_alloc_size(kind, tensor)));
    if (memory_.back() == nullptr) fail(ErrorCode::out_of_memory, "ggml: no memory");
    ggml_backend_tensor_alloc(memory_.back().get(), tensor, ggml_backend_buffer_get_base(memory_.back().get()));
    ggml_backend_buffer_set_usage(memory_.back().get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    std::vector<std::byte> all;
    all.reserve(ggml_nbytes(tensor));
    const std::size_t bytes = ggml_row_size(type_, k) * static_cast<std::size_t>(n) / parts.size();
    for (const ExpertMatrices& expert : weights_.experts)
      for (const std::size_t part : parts) {
        const std::byte* from = codes_.empty() ? (expert.*matrices[part]).plain.data.memory() : codes_[part].data();
        all.insert(all.end(), from, from + bytes);
      }
    set(tensor, all);
    return tensor;
  }

  std::int64_t hidden_, intermediate_;
  ggml_type type_;
  DType plain_;
  MoeWeights weights_;
  std::deque<std::vector<std::byte>> codes_;  ///< codes of `matrices`, where ggml quantizes
  std::deque<std::vector<float>> values_;     ///< the numbers that the codes mean
  ggml_backend_ptr cpu_{ggml_backend_cpu_init()};
  ggml_context_ptr context_, inputs_, graph_context_;
  std::vector<ggml_backend_buffer_ptr> memory_;
  ggml_backend_buffer_ptr input_memory_;
  ggml_gallocr_ptr between_{ggml_gallocr_new(ggml_backend_cpu_buffer_type())};
  std::vector<ggml_tensor*> gate_up_, down_, outs_;  ///< by layer
  std::vector<ggml_cgraph*> graphs_;
  std::size_t last_ = 0;
};

}  // namespace

std::unique_ptr<PeerLayer> ggml_layer(const ModelCase& model, const MoeWeights& weights, int layers) {
  require_plain_mlp(model);
  return std::make_unique<GgmlLayer>(model, weights, layers);
}

std::set<std::string> ggml_schemes() {
  std::set<std::string> names;
  for (const auto& [scheme, type] : type_of_scheme()) names.insert(scheme);
  return names;
}

}  // namespace moecl::bench
