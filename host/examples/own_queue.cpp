// A checkpoint's layer inside an engine that has a context, a queue and memory of its own. The layer waits for the
// engine's event and returns an event.
//
// usage: own_queue DIR, with config.json, model.safetensors and golden.safetensors in it
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/opencl.hpp>
#include <moecl/safetensors.hpp>

#include <stdexcept>
#include <string>

#include "example.hpp"

namespace {

std::vector<float> f32_values(const moecl::HostTensor& tensor) {
  if (tensor.dtype != moecl::DType::f32) throw std::runtime_error("expected f32, got " + tensor.describe());
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  tensor.data.read(values.data(), tensor.size_bytes);
  return values;
}

void check_cl(cl_int status, const char* what) {
  if (status != CL_SUCCESS) throw std::runtime_error(std::string(what) + ": OpenCL status " + std::to_string(status));
}

/// What an inference engine already has: a context, a queue and memory.
struct Engine {
  explicit Engine(cl_device_id device) {
    cl_int status = CL_SUCCESS;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    check_cl(status, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &status);
    check_cl(status, "clCreateCommandQueue");
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() {
    for (cl_mem memory : memories) clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
  }
  moecl::BufferView allocate(std::size_t size_bytes) {
    cl_int status = CL_SUCCESS;
    memories.push_back(clCreateBuffer(context, CL_MEM_READ_WRITE, size_bytes, nullptr, &status));
    check_cl(status, "clCreateBuffer");
    return {memories.back(), 0, size_bytes};
  }

  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  std::vector<cl_mem> memories;
};

double run(const std::string& dir) {
  const auto golden = moecl::SafetensorsFile::open(dir + "/golden.safetensors");
  const std::vector<float> input = f32_values(golden.tensor("hidden_states"));
  const std::vector<float> expected = f32_values(golden.tensor("output"));

  Engine engine(moecl::select_devices().front().handle);
  const auto context = moecl::Context::borrow(engine.context);
  const moecl::Stream stream = moecl::Stream::borrow(*context, engine.queue);

  const auto checkpoint = moecl::Checkpoint::open(dir);
  const moecl::MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
  const moecl::MoeLayer layer(stream, config.shape, moecl::find_layer_weights(checkpoint, config));

  const std::int64_t hidden = config.shape.hidden, tokens = static_cast<std::int64_t>(input.size()) / hidden;
  const std::size_t tensor_bytes = input.size() * sizeof(float);
  moecl::MoeLayer::Forward args;
  args.x = {engine.allocate(tensor_bytes), moecl::DType::f32, {tokens, hidden}};
  args.out = {engine.allocate(tensor_bytes), moecl::DType::f32, {tokens, hidden}};
  args.workspace = engine.allocate(layer.workspace_bytes(tokens));

  cl_event written_event = nullptr;
  check_cl(clEnqueueWriteBuffer(engine.queue, args.x.buffer.handle, CL_FALSE, 0, tensor_bytes, input.data(), 0, nullptr,
                                &written_event),
           "clEnqueueWriteBuffer");
  const moecl::Event written(written_event);  // releases it
  moecl::Event done;
  layer.forward(stream, args, {{&written_event, 1}, &done});  // enqueues and returns
  const cl_event done_event = done.handle();
  std::vector<float> output(expected.size());
  check_cl(clEnqueueReadBuffer(engine.queue, args.out.buffer.handle, CL_TRUE, 0, tensor_bytes, output.data(), 1,
                               &done_event, nullptr),
           "clEnqueueReadBuffer");
  return relative_error(output, expected);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: own_queue DIR\n", stderr);
    return 2;
  }
  return run_example(1e-5, [&] { return run(argv[1]); });
}
