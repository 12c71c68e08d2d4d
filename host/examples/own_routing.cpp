// Experts that the caller chooses. A first pass uses the layer's router; a second pass gets its choice from the caller.
//
// usage: own_routing MODEL_DIR
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>

#include "example.hpp"

namespace {

double run(const char* model_dir) {
  const auto context = moecl::Context::create({moecl::select_devices().front()});
  const moecl::Stream stream(*context);
  const moecl::Checkpoint checkpoint = moecl::Checkpoint::open(model_dir);
  const moecl::MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
  const moecl::MoeLayer layer(stream, config.shape, moecl::find_layer_weights(checkpoint, config));

  const std::int64_t tokens = 6, hidden = config.shape.hidden, top_k = config.shape.router.top_k;
  const moecl::DeviceTensor x(*context, moecl::DType::f32, {tokens, hidden});
  const moecl::DeviceTensor routed(*context, moecl::DType::f32, {tokens, hidden});
  const moecl::DeviceTensor out(*context, moecl::DType::f32, {tokens, hidden});
  const moecl::DeviceTensor ids(*context, moecl::DType::i32, {tokens, top_k});
  const moecl::DeviceTensor weights(*context, moecl::DType::f32, {tokens, top_k});
  const moecl::DeviceTensor fault(*context, moecl::DType::i32, {4});
  const moecl::Buffer workspace(*context, layer.workspace_bytes(tokens));
  write(stream, x, random_values(static_cast<std::size_t>(tokens * hidden), 1));
  write<std::int32_t>(stream, fault, {0, 0, 0, 0});

  moecl::MoeLayer::Forward by_router;
  by_router.x = x;
  by_router.out = routed;
  by_router.topk_ids = ids;  // outputs
  by_router.topk_weights = weights;
  by_router.workspace = workspace.view();
  layer.forward(stream, by_router);

  moecl::MoeLayer::Forward by_caller;
  by_caller.x = x;
  by_caller.out = out;
  by_caller.ids = ids;  // inputs
  by_caller.weights = weights;
  by_caller.fault = fault;  // an id that is no expert would set it
  by_caller.workspace = workspace.view();
  layer.forward(stream, by_caller);
  moecl::check_fault(stream, fault);
  return relative_error(read<float>(stream, out), read<float>(stream, routed));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: own_routing MODEL_DIR\n", stderr);
    return 2;
  }
  return run_example(1e-6, [&] { return run(argv[1]); });
}
