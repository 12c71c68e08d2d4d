#include "bench/model_operands.hpp"

#include <algorithm>
#include <set>

#include "bench/device.hpp"
#include "host/layer/weight_upload.hpp"
#include "runtime/quotient.hpp"

namespace moecl::bench {
namespace {

std::vector<double> as_doubles(const std::vector<std::int32_t>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

ExpertProduct::ExpertProduct(const ModelCase& model, Which which, DType out, const Routing& routing,
                             const Layers& layers)
    : shape_(model, which, routing),
      layers_(layers),
      weights_(which == Which::gate_up ? &ExpertSegment::gate_up : &ExpertSegment::down),
      a_(stream(), Activations(model.scheme, shape_.k).dtype,
         {shape_.a_rows, Activations(model.scheme, shape_.k).columns}),
      slots_(stream(), DType::i32, {routing.tokens * routing.top_k}, as_doubles(routing.sorted_slots)),
      row_ends_(stream(), DType::i32, {model.shape.experts}, as_doubles(routing.row_ends)),
      out_(stream(), out, {routing.tokens * routing.top_k, shape_.n}) {
  const Activations activations(model.scheme, shape_.k);
  const std::vector<std::byte> a = product_activations(model, shape_);
  write_blocking(stream(), a_.view.buffer, a.data(), a.size());
  if (activations.scaled && activations.group == 0)
    scale_.emplace_back(stream(), DType::f32, std::initializer_list<std::int64_t>{shape_.a_rows});
  else if (activations.scaled)
    scale_.emplace_back(stream(), activations.scale_dtype,
                        std::initializer_list<std::int64_t>{shape_.a_rows, quotient_up(shape_.k, activations.group)});
  for (const test::DeviceTensor& scale : scale_) {
    const std::vector<unsigned char> values =
        test::encode(scale.view.dtype,
                     std::vector<double>(static_cast<std::size_t>(scale.view.elements()), activation_scale(model)));
    if (scale.view.dtype == DType::u8)
      enqueue_fill(stream(), scale.view.buffer, 0x7a7a7a7a);  // e8m0
    else
      write_blocking(stream(), scale.view.buffer, values.data(), values.size());
  }
  args_.a = a_;
  if (which == Which::gate_up) {
    args_.a_index = slots_;
    args_.index_divisor = static_cast<std::int32_t>(routing.top_k);
  }
  args_.row_ends = row_ends_;
  args_.out = out_;
  args_.a_group = activations.group;
  if (!scale_.empty()) args_.a_scale = scale_.front();
  (layers_.front().front().*weights_).multiply(args_);
  cost_ = grouped_gemm::cost(args_, routing.active_experts);
}

void ExpertProduct::enqueue() {
  for (const ExpertSegment& segment : layers_[turn_++ % layers_.size()]) {
    (segment.*weights_).multiply(args_);
    args_.first_expert = segment.first_expert;
    grouped_gemm::enqueue(stream(), args_);
  }
}

std::string ExpertProduct::variant() const { return grouped_gemm::select(args_, {}, *stream().device); }

ExpertProduct::Layers load_layers(const ModelCase& model, const ModelWeights& weights, int count) {
  ExpertProduct::Layers layers;
  const Activations rows(model.scheme, model.shape.hidden);
  for (int layer = 0; layer < count; ++layer) {
    const std::vector<ExpertMatrices>& experts = weights.weights.experts;
    layers.push_back(
        allocate_experts(stream(), model.shape, experts, model.scheme.plain, {}, {rows.dtype, rows.group}));
    WeightUpload upload(stream());
    load_experts(upload, layers.back(), experts, nullptr, {});
    upload.finish();
  }
  return layers;
}

LayerForward::LayerForward(const ModelCase& model, const RoutingSource& source, std::int64_t tokens,
                           const std::vector<MoeLayer>& layers)
    : layers_(layers),
      workspace_(*stream().context, std::max<std::uint64_t>(layers.front().workspace_bytes(tokens), 1)),
      x_(stream(), model.scheme.plain, {tokens, model.shape.hidden}),
      out_(stream(), DType::f32, {tokens, model.shape.hidden}),
      ids_(stream(), DType::i32, {tokens, model.shape.router.top_k}),
      weights_(stream(), DType::f32, {tokens, model.shape.router.top_k}) {
  const MoeShape& shape = model.shape;
  const std::vector<std::byte> x = repeated_values(model.scheme.plain, tokens * shape.hidden, 1);
  write_blocking(stream(), x_.view.buffer, x.data(), x.size());
  forward_.x = x_;
  forward_.out = out_;
  forward_.workspace = workspace_.view();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * shape.router.top_k));
  if (source.name == "uniform") {  // random weights of the router spread the tokens by themselves
    MoeLayer::Forward telling = forward_;
    telling.topk_ids = ids_;
    telling.topk_weights = weights_;
    layers_.front().forward(stream(), telling);
    read_blocking(stream(), ids_.view.buffer, ids.data(), ids.size() * 4);
  } else {
    ids = source.route(tokens, shape.router.top_k, shape.experts).ids;
    write_blocking(stream(), ids_.view.buffer, ids.data(), ids.size() * 4);
    enqueue_fill(stream(), weights_.view.buffer, 0x3e000000);  // 1 / 8
    forward_.ids = ids_;
    forward_.weights = weights_;
  }
  const auto active = static_cast<double>(std::set<std::int32_t>(ids.begin(), ids.end()).size());
  const double slots = static_cast<double>(ids.size()), width = static_cast<double>(shape.hidden);
  const double element = static_cast<double>(size_bytes(model.scheme.plain));
  const double router = static_cast<double>(shape.experts) * width,
               shared = 3 * static_cast<double>(shape.shared_intermediate) * width,
               expert = 3 * static_cast<double>(shape.intermediate) * width;
  const double token_flops = 2 * static_cast<double>(tokens) * (shared + (forward_.ids.present() ? 0 : router));
  cost_.flops = static_cast<std::uint64_t>(2 * slots * expert + token_flops);
  cost_.bytes = static_cast<std::uint64_t>(active * model.expert_bytes() + (router + shared) * element +
                                           static_cast<double>(tokens) * width * (element + 4));
}

void LayerForward::enqueue(StreamView stream) { layers_[turn_++ % layers_.size()].forward(stream, forward_); }

}  // namespace moecl::bench
