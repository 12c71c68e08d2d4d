#include "host/layer/layer_parts.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "host/layer/expert_bytes.hpp"
#include "host/layer/weight_upload.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

void expect_shape(const MoeShape& shape) {
  require(shape.hidden >= 1 && shape.intermediate >= 1 && shape.experts >= 1,
          "layer: hidden {}, intermediate {}, experts {} must be positive", shape.hidden, shape.intermediate,
          shape.experts);
  for (const std::int32_t count : {shape.zero_experts, shape.copy_experts, shape.const_experts})
    require(count >= 0 && count <= std::numeric_limits<std::int32_t>::max() / 4, "layer: {} experts without products",
            count);
  require(shape.expert_hidden >= 0 && shape.vocabulary >= 0, "layer: expert_hidden {} or vocabulary {} is negative",
          shape.expert_hidden, shape.vocabulary);
  require(shape.vocabulary == 0 || !shape.selection_bias, "layer: a selection bias, but a table says the experts");
  require(shape.router.chosen() >= 1 && shape.router.chosen() <= shape.choices(),
          "layer: top_k {} is not in [1, {} experts]", shape.router.chosen(), shape.choices());
  const std::string unroutable = gating_top_k::reject(shape.router, shape.choices());
  require(unroutable.empty(), "layer: {}", unroutable);
  require(shape.shared_intermediate >= 0, "layer: shared intermediate size {} is negative", shape.shared_intermediate);
  require(shape.shared_intermediate > 0 || !shape.shared_gate, "layer: a shared gate without shared experts");
}

void expect_bias(const HostMatrix& bias, const std::string& what, bool expected, std::int64_t columns) {
  require(bias.present() == expected, "{}: the shape says {}, the weights have {}", what, expected ? "one" : "none",
          bias.present() ? "one" : "none");
  if (expected) expect_matrix(bias, what.c_str(), 1, columns);
}

void expect_expert(const ExpertMatrices& expert, const std::string& what, std::int64_t hidden, std::int64_t inter,
                   bool gated, bool biased) {
  if (gated)
    expect_weights(expert.gate, (what + " gate").c_str(), inter, hidden);
  else
    require(!expert.gate.present(), "{} gate: given, but the activation is not gated", what);
  expect_weights(expert.up, (what + " up").c_str(), inter, hidden);
  expect_weights(expert.down, (what + " down").c_str(), hidden, inter);
  expect_bias(expert.gate_bias, what + " gate bias", biased && gated, inter);
  expect_bias(expert.up_bias, what + " up bias", biased, inter);
}

/// Checks an expert table and returns its ids.
std::vector<std::int32_t> ids_of(const HostMatrix& given, const MoeShape& shape) {
  require((given.dtype == DType::i32 || given.dtype == DType::i64) && given.rows == shape.vocabulary &&
              given.columns == shape.router.chosen(),
          "expert table: expected i32 or i64 [{}, {}], got {} [{}, {}]", shape.vocabulary, shape.router.chosen(),
          name(given.dtype), given.rows, given.columns);
  const HostMatrix table = given.in_memory();
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < table.rows * table.columns; ++i) {
    const std::int64_t row = i / table.columns, column = i % table.columns;
    const std::byte* at =
        table.data.memory() +
        static_cast<std::size_t>(row * table.row_stride + column * table.column_stride) * size_bytes(table.dtype);
    std::int64_t id = 0;
    std::memcpy(&id, at, size_bytes(table.dtype));  // little-endian
    if (table.dtype == DType::i32) id = static_cast<std::int32_t>(id);
    if (id < 0 || id >= shape.choices())
      fail(ErrorCode::invalid_data, "expert table: {} of token id {} is not in [0, {})", id, row, shape.choices());
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

void expect_special(const MoeShape& shape, const MoeWeights& weights) {
  for (const auto& [matrix, what] : {std::pair{&weights.const_alpha_1, "constant experts' alpha_1"},
                                     {&weights.const_alpha_2, "constant experts' alpha_2"},
                                     {&weights.const_v, "constant experts' v"}}) {
    if (shape.const_experts > 0)
      expect_matrix(*matrix, what, shape.const_experts, shape.expert_width());
    else
      require(!matrix->present(), "{}: given, but the shape has none", what);
  }
  require(weights.expert_table.present() == (shape.vocabulary > 0),
          "expert table: the shape says {} token ids, the weights have {}", shape.vocabulary,
          weights.expert_table.present() ? "one" : "none");
}

/// Checks all weights but the routed experts.
void expect_common(const MoeShape& shape, const MoeWeights& weights) {
  if (weights.router.present()) expect_matrix(weights.router, "router", shape.choices(), shape.hidden);
  require(weights.router.present() || !shape.router_bias, "router: absent, but it has a bias");
  expect_bias(weights.router_bias, "router bias", shape.router_bias, shape.choices());
  expect_bias(weights.selection_bias, "selection bias", shape.selection_bias, shape.choices());
  expect_special(shape, weights);
  if (shape.shared_intermediate > 0) {
    expect_expert(weights.shared, "shared experts", shape.hidden, shape.shared_intermediate, shape.activation.gated,
                  shape.shared_bias);
    const bool down_bias = shape.shared_bias && weights.shared.down_bias.present();  // as of experts, below
    expect_bias(weights.shared.down_bias, "shared experts down bias", down_bias, shape.hidden);
  }
  if (shape.shared_gate) expect_matrix(weights.shared_gate, "shared expert gate", 1, shape.hidden);
}

void expect_weights(const MoeShape& shape, const MoeWeights& weights, std::int64_t local_experts) {
  expect_common(shape, weights);
  require(weights.experts.size() == static_cast<std::size_t>(local_experts),
          "experts: the shape says {}, the weights have {}", local_experts, weights.experts.size());
  for (std::size_t i = 0; i < weights.experts.size(); ++i) {
    const ExpertMatrices& expert = weights.experts[i];
    expect_expert(expert, fmt::format("expert {}", i), shape.expert_width(), shape.intermediate, shape.activation.gated,
                  shape.expert_bias);
    // If ranks have parts of experts, only the first part has the bias. So all experts here have one, or none has.
    const bool down_bias = shape.expert_bias && weights.experts.front().down_bias.present();
    expect_bias(expert.down_bias, fmt::format("expert {} down bias", i), down_bias, shape.expert_width());
  }
}

bool rows_are_contiguous(const ExpertMatrices& network) {
  return network.gate.plain.column_stride == 1 && network.up.plain.column_stride == 1 &&
         network.down.plain.column_stride == 1;
}

/// The backends of dense products, and of the experts' products in the batched layout.
struct Backends {
  dense_backend::Choice dense, batched;

  Backends(const DeviceCaps& caps, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options)
      : dense(dense_backend::select(caps, options.dtype)), batched(dense_backend::select_batched(caps, options.dtype)) {
    if (options.dense_backend) {
      require(*options.dense_backend != dense_backend::Backend::clblast || options.dtype == DType::f32,
              "layer: CLBlast needs dtype f32, got {}", name(options.dtype));
      dense = batched = {*options.dense_backend, "asked for by the caller"};
    }
    if (options.budget.bytes != 0 || options.budget.percent != 0)
      need_packed(batched, options, "CLBlast reads no experts that take turns in device memory");
    if (shape.router_bias || shape.shared_bias)
      need_packed(dense, options, "CLBlast adds no bias of the router or the shared experts");
    if (!rows_are_contiguous(weights.shared)) need_packed(dense, options, "the shared experts are stored transposed");
    if (options.quantize.quantized() || (!weights.experts.empty() && weights.experts.front().up.quantized()))
      batched = {dense_backend::Backend::grouped_gemm, "the only one for quantized weights"};
    if (shape.expert_bias) need_packed(batched, options, "CLBlast adds no biases of experts");
    if (!weights.experts.empty() && !rows_are_contiguous(weights.experts.front()))
      need_packed(batched, options, "the experts are stored transposed");
  }

 private:
  static void need_packed(dense_backend::Choice& choice, const MoeLayerOptions& options, const char* reason) {
    if (choice.backend == dense_backend::Backend::grouped_gemm) return;
    if (options.dense_backend) fail(ErrorCode::unsupported, "layer: CLBlast was asked for, but {}", reason);
    choice = {dense_backend::Backend::grouped_gemm, reason};
  }
};

const MoeShape& checked(const MoeShape& shape, const MoeLayerOptions& options) {
  expect_shape(shape);
  for (const DType dtype : {options.dtype, options.router_dtype.value_or(options.dtype)})
    require(is_activation_dtype(dtype), "layer: dtype {} is not f32, f16 or bf16", name(dtype));
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // kernels count rows in 32 bits
  for (const std::int64_t rows : {options.rows_per_expert, options.chunk_tokens})
    require(rows >= 0 && rows <= most, "layer: rows_per_expert {} or chunk_tokens {} is not in [0, {}]",
            options.rows_per_expert, options.chunk_tokens, most);
  return shape;
}

constexpr std::size_t packing_header_bytes = 256;
/// The header before the bytes of a packed expert: how it is packed, in words.
std::vector<std::byte> packing_header(const std::string& packing) {
  std::vector<std::byte> header(packing_header_bytes);
  std::memcpy(header.data(), packing.data(), std::min(packing.size(), packing_header_bytes));
  return header;
}

/// The shape as the routed experts see it.
MoeShape expert_shape(const MoeShape& shape) {
  MoeShape of = shape;
  of.hidden = shape.expert_width();
  return of;
}

}  // namespace

DType router_dtype(const MoeWeights& weights, const MoeLayerOptions& options) {
  const bool beside_others = !weights.experts.empty() && (weights.experts.front().up.quantized() ||
                                                          weights.experts.front().up.plain.dtype != DType::f32);
  const bool in_f32 = weights.router.present() && weights.router.dtype == DType::f32 && beside_others;
  return options.router_dtype.value_or(in_f32 ? DType::f32 : options.dtype);
}

LayerParts::LayerParts(StreamView stream, const MoeShape& layer_shape, std::int64_t local_experts,
                       const MoeLayerOptions& layer_options)
    : device(stream.device),
      shape(checked(layer_shape, layer_options)),
      options(layer_options),
      local_experts_(local_experts) {
  for (const std::string& warning : options.warnings) stream.context->log(LogLevel::warning, warning);
}

LayerParts::LayerParts(StreamView stream, const MoeShape& layer_shape, const MoeWeights& weights,
                       std::int64_t local_experts, const MoeLayerOptions& layer_options, const LoadProgress& progress)
    : LayerParts(stream, layer_shape, local_experts, layer_options) {
  expect_weights(shape, weights, local_experts);  // before anything is uploaded
  allocate_experts(stream, weights.experts);
  allocate_common(stream, weights);
  write(stream, weights, progress);
}

void LayerParts::allocate_experts(StreamView stream, const std::vector<ExpertMatrices>& all) {
  MoeWeights weights;
  weights.experts = all;
  const Backends backends(stream.device->caps, shape, weights, options);
  experts = Experts(stream, expert_shape(shape), all, options, backends.batched.backend);
  if (options.layout == ExpertLayout::batched) {
    report.batched_backend = dense_backend::name(backends.batched.backend);
    report.batched_reason = backends.batched.reason;
  }
  report.expert_format = experts.format();
  report.expert_layout = experts.layout();
  report.expert_layout_reason = options.panel_layout ? "asked for by the caller" : experts.layout_reason();
  report.weight_segments = experts.segments();
}

void LayerParts::allocate_experts(StreamView stream, const ExpertMatrices& like) {
  expect_expert(like, "expert", shape.expert_width(), shape.intermediate, shape.activation.gated, shape.expert_bias);
  allocate_experts(stream, std::vector<ExpertMatrices>(static_cast<std::size_t>(local_experts_), like));
}

void LayerParts::allocate_common(StreamView stream, const MoeWeights& weights) {
  const Backends backends(stream.device->caps, shape, weights, options);
  if (!backends.dense.problem.empty()) stream.context->log(LogLevel::warning, backends.dense.problem);
  has_router = weights.router.present();
  if (has_router) {
    report.router_dtype = router_dtype(weights, options);
    router = DenseProduct(
        stream, {weights.router}, shape.router_bias, report.router_dtype,
        report.router_dtype == options.dtype ? backends.dense.backend : dense_backend::Backend::grouped_gemm);
  }
  shared = SharedExperts(stream, shape, weights, options, backends.dense.backend);
  if (shape.selection_bias) {
    selection_bias_memory = Buffer(*stream.context, static_cast<std::uint64_t>(shape.choices()) * 4);
    selection_bias = TensorView(selection_bias_memory.view(), DType::f32, {shape.choices()});
  }
  if (shape.vocabulary > 0) {
    const auto entries = static_cast<std::uint64_t>(shape.vocabulary * shape.router.chosen());
    expert_table_memory = Buffer(*stream.context, entries * sizeof(std::int32_t));
    expert_table = TensorView(expert_table_memory.view(), DType::i32, {shape.vocabulary, shape.router.chosen()});
  }
  special = SpecialExperts(stream, shape, options.dtype);
  report.dense_backend = dense_backend::name(backends.dense.backend);
  report.dense_reason = backends.dense.reason;
  report.shared_format = shared.format();
  report.shared_queue = shared.queue();
  report.activations = experts.activations();
  if (shared.present() && shared.activations() != report.activations)
    report.activations += "; of shared experts " + shared.activations();
  report.resident_experts = experts.resident();
  report.resident_bytes = experts.resident_bytes();
  report.missed_experts = experts.missed();
  if (options.budget.missed == MissedExperts::automatic && experts.limited())
    report.missed_experts +=
        device->caps.type == DeviceType::cpu ? ": a CPU's memory is the host's" : ": the device has memory of its own";
  report.weight_bytes = experts.weight_bytes() + router.weight_bytes() + shared.weight_bytes() +
                        special.weight_bytes() + selection_bias_memory.size_bytes() + expert_table_memory.size_bytes();
}

QuantizationError LayerParts::load(WeightUpload& upload, const MoeWeights& weights, const LoadProgress& progress) {
  load_common(upload, weights);
  return experts.load(upload, weights.experts, progress);
}

void LayerParts::load_common(WeightUpload& upload, const MoeWeights& weights) {
  if (has_router)
    router.load(upload, {weights.router},
                shape.router_bias ? std::vector{weights.router_bias} : std::vector<HostMatrix>{});
  shared.load(upload, weights);
  special.load(upload, weights);
  if (shape.selection_bias) upload.write(numbers_of({weights.selection_bias}).data(), selection_bias);
  if (shape.vocabulary > 0) upload.write(ids_of(weights.expert_table, shape).data(), expert_table);
}

void LayerParts::write(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  whole_ = false;
  WeightUpload upload(stream);
  report.quantization = load(upload, weights, progress);
  upload.finish();
  report.read_bytes = upload.read_bytes();
  whole_ = true;
}

void LayerParts::expect_whole() const {
  require(whole_, "layer: replacing its weights failed half way; replace them again before the next pass");
}

void LayerParts::replace(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  expect_weights(shape, weights, local_experts_);
  require(weights.router.present() == has_router, "router: there is {} to replace", has_router ? "one" : "none");
  if (has_router) router.expect({weights.router}, "router");
  experts.expect(weights.experts);
  shared.expect(weights);
  {
    WeightUpload check(stream, WeightUpload::Purpose::check);
    load(check, weights, {});
  }  // frees the memory of the check before the writing takes its own
  write(stream, weights, progress);
}

void LayerParts::write_expert(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert) {
  expect_expert_here(number, expert);
  report.quantization.add(experts.load(upload, number, expert));
  upload.finish();
}

void LayerParts::write_common(StreamView stream, const MoeWeights& weights) {
  expect_common(shape, weights);
  allocate_common(stream, weights);
  WeightUpload upload(stream);
  load_common(upload, weights);
  upload.finish();
  report.read_bytes += upload.read_bytes();
  whole_ = true;
}

void LayerParts::expect_expert_here(std::int64_t number, const ExpertMatrices& expert) const {
  const std::string what = fmt::format("expert {}", number);
  expect_expert(expert, what, shape.expert_width(), shape.intermediate, shape.activation.gated, shape.expert_bias);
  experts.expect({expert});
  if (expert.down_bias.present())
    expect_bias(expert.down_bias, what + " down bias", shape.expert_bias, shape.expert_width());
}

void LayerParts::expect_number(const char* what, std::int64_t number) const {
  require(number >= 0 && number < local_experts_, "{}: {} is not in [0, {})", what, number, local_experts_);
}

std::uint64_t LayerParts::packed_expert_bytes() const {
  expect_number("packed expert", 0);
  std::uint64_t bytes = packing_header_bytes;
  for (const BufferView& part : experts.parts(0)) bytes += part.size_bytes;
  return bytes;
}

std::vector<std::byte> LayerParts::packed_expert(StreamView stream, std::int64_t number) const {
  expect_whole();
  expect_number("packed expert", number);
  std::vector<std::byte> packed = packing_header(experts.packing());
  const std::vector<std::byte> bytes = read_bytes(stream, experts.parts(number));
  packed.insert(packed.end(), bytes.begin(), bytes.end());
  return packed;
}

PlainExpert LayerParts::plain_expert(StreamView stream, std::int64_t number) const {
  expect_whole();
  expect_number("plain expert", number);
  return experts.plain(stream, number);
}

void LayerParts::replace_packed_expert(StreamView stream, std::int64_t number, const std::vector<std::byte>& packed) {
  expect_whole();
  expect_number("replace packed expert", number);
  const std::vector<std::byte> header = packing_header(experts.packing());
  const std::uint64_t bytes = packed_expert_bytes();
  require(packed.size() == bytes, "replace packed expert: expected {} bytes of {}, got {}", bytes, experts.packing(),
          packed.size());
  require(std::equal(header.begin(), header.end(), packed.begin()),
          "replace packed expert: expected {}, got another packing", experts.packing());
  whole_ = false;
  write_bytes(stream, experts.parts(number), packed.data() + header.size());
  experts.forget(stream);
  whole_ = true;
}

void LayerParts::replace_expert(StreamView stream, std::int64_t number, const ExpertMatrices& expert) {
  expect_whole();
  expect_number("replace_expert", number);
  expect_expert_here(number, expert);
  {
    WeightUpload check(stream, WeightUpload::Purpose::check);
    experts.load(check, number, expert);
  }
  whole_ = false;
  WeightUpload upload(stream);
  experts.load(upload, number, expert);
  upload.finish();
  whole_ = true;
}

}  // namespace moecl
