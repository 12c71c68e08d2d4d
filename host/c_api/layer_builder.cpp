// The C interface of layer builders.
#include <moecl/layer_builder.h>
#include <moecl/layer_builder.hpp>
#include <moecl/named_weights.hpp>

#include <fmt/ranges.h>

#include <string_view>

#include "host/c_api/parallel.hpp"
#include "host/c_api/quantized_array.hpp"

namespace moecl::c_api {
namespace {

/// What the handle of a rank's builder holds beside the builder.
struct RankOfBuilder {
  std::shared_ptr<GroupOfStreams> ranks;
  ExpertRank rank;
  Decided decided;
};

}  // namespace
}  // namespace moecl::c_api

struct moecl_layer_builder {
  std::shared_ptr<moecl::Context> context;  ///< of a builder for one device; null for a rank
  moecl::LayerBuilder builder;
  bool by_shard;  ///< tensors have the names of named_layer
  std::string router_spec = {};
  std::optional<moecl::c_api::RankOfBuilder> of_rank = {};
};

namespace moecl::c_api {
namespace {

static_assert(static_cast<int>(StoredForm::rows) == MOECL_FORM_ROWS &&
              static_cast<int>(StoredForm::words) == MOECL_FORM_WORDS &&
              static_cast<int>(StoredForm::gptq) == MOECL_FORM_GPTQ &&
              static_cast<int>(StoredForm::gptq_v2) == MOECL_FORM_GPTQ_V2 &&
              static_cast<int>(StoredForm::awq) == MOECL_FORM_AWQ &&
              static_cast<int>(StoredForm::blocks) == MOECL_FORM_BLOCKS);

/// The layer that a builder makes.
struct Described {
  MoeLayerConfig config;
  MoeLayerOptions options;
  bool by_shard;
  std::string router_spec = {};
};

QuantizedModules modules_of(const moecl_stored_weights& stored) {
  QuantizedModules modules;
  modules.form = enumerator(stored.form, StoredForm::blocks, "stored.form");
  modules.scheme.weights = operand_quant(stored.weights, "stored.weights");
  if (stored.scheme == nullptr) return modules;
  require(!modules.scheme.weights.quantized(), "stored: give a scheme or weights, not both");
  const std::optional<QuantScheme> scheme = scheme_named(stored.scheme);
  require(scheme.has_value(), "stored.scheme: \"{}\" is no scheme", stored.scheme);
  modules.scheme = *scheme;
  return modules;
}

MoeLayerOptions options_of(const MoeLayerConfig& config, const moecl_layer_options& given) {
  const std::optional<DType> dtype =
      given.dtype == MOECL_DEFAULT_DTYPE ? config.dtype : dtype_of(given.dtype, "options.dtype");
  require(dtype.has_value(), "options.dtype: say one; it cannot be taken from weights that are still to come");
  MoeLayerOptions options = layer_options(given, *dtype);
  const MoeLayerOptions built = built_options(config, *dtype);
  options.warnings = built.warnings;
  if (given.plain_activations != 0) return options;
  if (!options.activations.quantized()) options.activations = built.activations;
  if (!options.shared_activations.quantized()) options.shared_activations = built.shared_activations;
  return options;
}

Described described(const moecl_layer_desc* desc, const moecl_stored_weights* stored,
                    const moecl_layer_options* options) {
  const auto given = read_struct(desc, "desc");
  const auto weights = read_options(stored, "stored");
  Described layer;
  layer.by_shard = true;
  layer.config =
      named_layer(shape_of(given), modules_of(weights), given.gate_up_interleaved != 0, weights.transposed != 0);
  if (given.router.data == nullptr) layer.config.names.router.clear();
  layer.config = fused(layer.config, given.num_fused_shared_experts);
  layer.options = options_of(layer.config, read_options_beside_desc(options));
  return layer;
}

Described described(const char* config_json, std::int32_t layer, const moecl_layer_options* options) {
  const auto given = read_options(options, "options");
  const ModelConfig model = ModelConfig::load(&required(config_json, "config_json"), text_or_empty(given.router_spec));
  Described of;
  of.by_shard = false;
  of.config = fused(model.layer(layer == -1 ? model.first_moe_layer() : layer), given.num_fused_shared_experts);
  of.options = options_of(of.config, given);
  of.router_spec = text_or_empty(given.router_spec);
  return of;
}

template <class... Description>
moecl_status make_builder(moecl_stream* stream, moecl_layer_builder** out_builder, Description... description) {
  return guarded([&] {
    moecl_layer_builder*& out = required(out_builder, "out_builder");
    const moecl_stream& on = required(stream, "stream");
    const Described layer = described(description...);
    out = new moecl_layer_builder{on.context, LayerBuilder(on.stream, layer.config, layer.options), layer.by_shard,
                                  layer.router_spec};
  });
}

template <class... Description>
moecl_status make_rank_builder(moecl_communicator* communicator, const moecl_parallel_options* parallel,
                               moecl_layer_builder** out_builder, Description... description) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_layer_builder*& out = required(out_builder, "out_builder");
    const Described layer = described(description...);
    const Decided decided(read_options(parallel, "parallel"), layer.config.shape, ranks.size());
    const ExpertRank rank = decided.rank_of(communicator->communicator);
    out = new moecl_layer_builder{{},
                                  LayerBuilder(rank, decided.plan, layer.config, layer.options),
                                  layer.by_shard,
                                  layer.router_spec,
                                  RankOfBuilder{communicator->ranks, rank, decided}};
  });
}

std::string name_of(const moecl_layer_builder& of, const moecl_named_tensor& tensor) {
  std::string name = &required(tensor.name, "tensor.name");
  if (tensor.shard == nullptr) return name;
  require(of.by_shard, "tensor.shard: \"{}\", but the builder knows the names of a checkpoint", tensor.shard);
  const std::string shard = tensor.shard;
  for (const std::string_view of_experts : {"w1", "w2", "w3", "gate_up"}) {
    if (shard != of_experts) continue;
    require(tensor.expert >= -1, "tensor.expert: {} is less than -1", tensor.expert);
    return tensor.expert == -1 ? fmt::format("experts.{}.{}", shard, name)
                               : fmt::format("experts.{}.{}.{}", tensor.expert, shard, name);
  }
  return shard + "." + name;
}

DType dtype_of_tensor(std::int32_t number) {
  if (number == MOECL_E8M0) return DType::u8;
  const std::optional<DType> dtype = to_dtype(number, "tensor.dtype");
  require(dtype.has_value(), "tensor.dtype: say one");
  return *dtype;
}

HostTensor host_tensor(std::string name, const moecl_named_tensor& from) {
  HostTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype_of_tensor(from.dtype);
  require(from.rank >= 0 && from.rank <= TensorView::max_rank, "tensor.rank: {} is not in [0, {}]", from.rank,
          TensorView::max_rank);
  std::int64_t elements = 1;
  for (std::int32_t i = 0; i < from.rank; ++i) {
    require(from.shape[i] >= 0 && !__builtin_mul_overflow(elements, from.shape[i], &elements) &&
                elements <= std::int64_t{1} << 50,
            "tensor.shape: {} in dimension {} of {}", from.shape[i], i, tensor.name);
    tensor.shape.push_back(from.shape[i]);
  }
  tensor.size_bytes = static_cast<std::uint64_t>(elements) * size_bytes(tensor.dtype);
  return tensor;
}

bool take(moecl_layer_builder& of, const moecl_named_tensor& from) {
  require((from.data != nullptr) != (from.memory.memory != nullptr), "tensor: give data or memory, and not both");
  HostTensor tensor = host_tensor(name_of(of, from), from);
  if (!of.builder.wants(tensor.name)) return false;
  if (from.data != nullptr) {
    tensor.data = from.lent != 0 ? HostBytes(from.data) : HostBytes::copy_of(from.data, tensor.size_bytes);
    return of.builder.set(tensor);
  }
  const Context& context = of.of_rank ? *of.of_rank->rank.ep.rank_stream().context : *of.context;
  const BufferView memory = memory_of(context, from.memory, size_bytes(tensor.dtype), "tensor.memory");
  require(memory.size_bytes >= tensor.size_bytes, "tensor.memory: {} needs {} bytes, got {}", tensor.describe(),
          tensor.size_bytes, memory.size_bytes);
  return of.builder.set(tensor, memory.slice(0, tensor.size_bytes));
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_layer_builder_create(moecl_stream* stream, const moecl_layer_desc* desc,
                                        const moecl_stored_weights* stored, const moecl_layer_options* options,
                                        moecl_layer_builder** out_builder) {
  return make_builder(stream, out_builder, desc, stored, options);
}

moecl_status moecl_layer_builder_open(moecl_stream* stream, const char* config_json, int32_t layer,
                                      const moecl_layer_options* options, moecl_layer_builder** out_builder) {
  return make_builder(stream, out_builder, config_json, layer, options);
}

moecl_status moecl_layer_builder_create_rank(moecl_communicator* communicator, const moecl_layer_desc* desc,
                                             const moecl_stored_weights* stored, const moecl_parallel_options* parallel,
                                             const moecl_layer_options* options, moecl_layer_builder** out_builder) {
  return make_rank_builder(communicator, parallel, out_builder, desc, stored, options);
}

moecl_status moecl_layer_builder_open_rank(moecl_communicator* communicator, const char* config_json, int32_t layer,
                                           const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                           moecl_layer_builder** out_builder) {
  return make_rank_builder(communicator, parallel, out_builder, config_json, layer, options);
}

moecl_status moecl_layer_builder_destroy(moecl_layer_builder* builder) {
  return guarded([&] { delete builder; });
}

moecl_status moecl_layer_builder_set(moecl_layer_builder* builder, const moecl_named_tensor* tensor,
                                     int32_t* out_taken) {
  return guarded([&] {
    const bool taken = take(required(builder, "builder"), read_struct(tensor, "tensor"));
    if (out_taken != nullptr) *out_taken = taken ? 1 : 0;
  });
}

moecl_status moecl_layer_builder_missing(const moecl_layer_builder* builder, int32_t* out_count, char* out_text,
                                         uint64_t text_bytes) {
  return guarded([&] {
    std::int32_t& count = required(out_count, "out_count");
    require((out_text != nullptr) == (text_bytes > 0), "out_text: {} bytes of {}", text_bytes,
            out_text == nullptr ? "no text" : "a text");
    const std::vector<std::string> names = required(builder, "builder").builder.missing();
    count = static_cast<std::int32_t>(names.size());
    if (out_text != nullptr) copy_text(fmt::format("{}", fmt::join(names, "\n")), out_text, text_bytes);
  });
}

moecl_status moecl_layer_builder_finish(moecl_layer_builder* builder, moecl_layer** out_layer) {
  return guarded([&] {
    moecl_layer*& out = required(out_layer, "out_layer");
    moecl_layer_builder& of = required(builder, "builder");
    out = new moecl_layer{of.context, of.builder.finish(), of.router_spec};
  });
}

moecl_status moecl_layer_builder_finish_rank(moecl_layer_builder* builder, moecl_parallel_layer** out_layer) {
  return guarded([&] {
    moecl_parallel_layer*& out = required(out_layer, "out_layer");
    moecl_layer_builder& of = required(builder, "builder");
    require(of.of_rank.has_value(), "builder: of no rank; moecl_layer_builder_finish gives its layer");
    const RankOfBuilder& rank = *of.of_rank;
    out = make_handle(rank.ranks, rank.rank, rank.decided, of.builder.finish_rank());
    out->router_spec = of.router_spec;
  });
}
