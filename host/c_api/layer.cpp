#include "host/c_api/layer.hpp"

namespace moecl::c_api {
namespace {

/// The stream on which the layer's weights are replaced, checked to be of the layer's cl_context.
StreamView stream_of(const moecl_layer* layer, const moecl_stream* stream) {
  const moecl_stream& on = required(stream, "stream");
  require(on.context->handle() == required(layer, "layer").context->handle(),
          "the stream and the layer are of different cl_contexts");
  return on.stream;
}

void replace_weights(moecl_layer* layer, const moecl_stream* stream, const MoeWeights& weights) {
  const StreamView on = stream_of(layer, stream);
  layer->layer.replace_weights(on, weights);
}

moecl_layer* make_layer(const moecl_stream& stream, const MoeShape& shape, const MoeWeights& weights,
                        const MoeLayerOptions& options, const char* router_spec) {
  return new moecl_layer{stream.context, MoeLayer(stream.stream, shape, weights, options), text_or_empty(router_spec)};
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_layer_load(moecl_stream* stream, const char* model_dir, int32_t layer,
                              const moecl_layer_options* options, moecl_layer** out_layer) {
  return guarded([&] {
    moecl_layer*& out = required(out_layer, "out_layer");
    const moecl_stream& on = required(stream, "stream");
    const moecl_layer_options given = read_options(options, "options");
    const StoredLayer stored(model_dir, layer, given.router_spec, given.num_fused_shared_experts);
    const MoeWeights weights = stored.weights();
    out = make_layer(on, stored.config.shape, weights, stored.options(given, weights), given.router_spec);
  });
}

moecl_status moecl_layer_create(moecl_stream* stream, const moecl_layer_desc* desc, const moecl_layer_options* options,
                                moecl_layer** out_layer) {
  return guarded([&] {
    moecl_layer*& out = required(out_layer, "out_layer");
    const moecl_stream& on = required(stream, "stream");
    const FusedShared given = layer_of(read_struct(desc, "desc"));
    out = make_layer(on, given.shape, given.weights,
                     layer_options(read_options_beside_desc(options), stored_dtype(given.weights)), nullptr);
  });
}

moecl_status moecl_layer_reload(moecl_layer* layer, moecl_stream* stream, const char* model_dir,
                                int32_t decoder_layer) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StoredLayer stored(model_dir, decoder_layer, of.router_spec.c_str(),
                             of.layer.shape().router.fused_shared_experts);
    replace_weights(layer, stream, stored.weights());
  });
}

moecl_status moecl_layer_replace(moecl_layer* layer, moecl_stream* stream, const moecl_layer_desc* desc) {
  return guarded([&] { replace_weights(layer, stream, layer_of(read_struct(desc, "desc")).weights); });
}

moecl_status moecl_layer_replace_expert(moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                        const moecl_layer_desc* desc) {
  return guarded([&] {
    const StreamView on = stream_of(layer, stream);
    layer->layer.replace_expert(on, expert, expert_of(read_struct(desc, "desc")));
  });
}

moecl_status moecl_layer_destroy(moecl_layer* layer) {
  return guarded([&] { delete layer; });
}

moecl_status moecl_layer_describe(const moecl_layer* layer, moecl_layer_info* out_info) {
  return guarded([&] {
    const MoeLayer& of = required(layer, "layer").layer;
    const MoeShape& shape = of.shape();
    moecl_layer_info info{};
    info.hidden = shape.hidden;
    info.intermediate = shape.intermediate;
    info.shared_intermediate = shape.shared_intermediate;
    info.experts = shape.experts;
    info.top_k = shape.router.top_k;
    info.dtype = number_of(of.options().dtype);
    info.expert_layout = static_cast<std::int32_t>(of.options().layout);
    info.chunk_tokens = of.report().chunk_tokens;
    info.weight_bytes = of.report().weight_bytes;
    info.expert_hidden = shape.expert_width();
    info.vocabulary = shape.vocabulary;
    info.zero_experts = shape.zero_experts;
    info.copy_experts = shape.copy_experts;
    info.const_experts = shape.const_experts;
    info.choices = shape.choices();
    info.router_dtype = of.has_router() ? number_of(of.report().router_dtype) : MOECL_DEFAULT_DTYPE;
    copy_text(of.report().expert_format, info.expert_format);
    copy_text(of.report().shared_format, info.shared_format);
    copy_text(of.report().activations, info.activations);
    copy_text(of.report().shared_queue, info.shared_queue);
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_layer_compile(const moecl_layer* layer, moecl_stream* stream, int64_t max_tokens) {
  return guarded([&] { required(layer, "layer").layer.compile(required(stream, "stream").stream, max_tokens); });
}

moecl_status moecl_layer_residency(const moecl_layer* layer, moecl_stream* stream, moecl_residency_counts* out_counts) {
  return guarded([&] {
    const MoeLayer& of = required(layer, "layer").layer;
    const ResidencyCounts counts = of.residency(required(stream, "stream").stream);
    write_struct(residency_counts(of.report(), counts), out_counts, "out_counts");
  });
}

moecl_status moecl_layer_workspace_bytes(const moecl_layer* layer, int64_t tokens, uint64_t* out_workspace_bytes) {
  return guarded([&] {
    required(out_workspace_bytes, "out_workspace_bytes") = required(layer, "layer").layer.workspace_bytes(tokens);
  });
}
