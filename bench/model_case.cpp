#include "bench/model_case.hpp"

#include <moecl/gating_top_k.hpp>
#include <moecl/model_config.hpp>
#include <moecl/model_shapes.hpp>
#include <moecl/opencl.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/check.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// An expert's plain matrices begin this many numbers after those of the previous expert. All share memory, but differ.
constexpr std::int64_t expert_shift = 131;

/// Bits of scale per element, in a group that shares a scale.
double scale_bits(const OperandQuant& operand) {
  if (!operand.quantized() || operand.group.columns == ScaleGroup::whole) return 0;
  const double bits = operand.scale == ScaleFormat::real ? 16 : 8;
  return bits / static_cast<double>(operand.group.columns);
}

}  // namespace

std::vector<std::string> known_bench_schemes() {
  std::vector<std::string> names = {"f32", "f16", "bf16"};
  for (const NamedScheme& named : named_schemes()) names.emplace_back(named.name);
  return names;
}

Scheme Scheme::named(const std::string& name) {
  for (const DType plain : {DType::f32, DType::f16, DType::bf16})
    if (name == moecl::name(plain)) return {name, plain, {}};
  const std::optional<QuantScheme> quant = scheme_named(name);
  require(quant.has_value(), "scheme '{}': not one of {}", name, fmt::join(known_bench_schemes(), ", "));
  return {name, DType::bf16, *quant};
}

double Scheme::weight_bits() const {
  if (!quant.weights.quantized()) return 8.0 * static_cast<double>(size_bytes(plain));
  return bits(*quant.weights.type) + scale_bits(quant.weights);
}

Bound Scheme::bound() const {
  const bool integers = quant.activations.type == CodeType::i8 && is_integer(*quant.weights.type);
  // Codes are exact as numbers of bf16.
  const bool bf16 = plain == DType::bf16 && !quant.activations.quantized();
  return {integers ? Arithmetic::int8 : bf16 ? Arithmetic::bf16 : Arithmetic::f32, true};
}

ModelCase ModelCase::named(const std::string& shape, std::int32_t experts, const Scheme& scheme) {
  const ModelConfig config = ModelConfig::parse(model_shape(shape).config_json, shape);
  ModelCase model{shape, config.moe.shape, scheme};
  if (experts == 0 && model.shape.experts > 128) experts = 16;
  if (experts != 0 && experts != model.shape.experts) {
    require(experts <= model.shape.experts, "{}: {} experts wanted, it has {}", shape, experts, model.shape.experts);
    const std::string reason = gating_top_k::reject(model.shape.router, experts);
    require(reason.empty(), "{} with {} experts: {}", shape, experts, reason);
    model.shape.experts = experts;
    model.shape_name += fmt::format("-e{}", experts);
  }
  return model;
}

double ModelCase::expert_bytes() const {
  return 3.0 * static_cast<double>(shape.intermediate * shape.hidden) * scheme.weight_bits() / 8;
}

int ModelCase::layers_out_of_cache(std::int64_t active, double bytes_of_expert, const Device& device) const {
  cl_ulong cache = 0;
  check_cl(clGetDeviceInfo(device.handle, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof(cache), &cache, nullptr),
           "clGetDeviceInfo");
  const double enough = 4 * std::max(static_cast<double>(cache), 32e6);
  const double room = 0.5 * static_cast<double>(device.caps.global_mem_bytes);
  const double wanted = std::ceil(enough / (static_cast<double>(active) * bytes_of_expert));
  return static_cast<int>(std::clamp(wanted, 1.0, std::max(room / (shape.experts * bytes_of_expert), 1.0)));
}

ModelWeights::ModelWeights(const ModelCase& model, bool all) {
  const MoeShape& shape = model.shape;
  const std::int64_t hidden = shape.hidden, inter = shape.intermediate;
  const DType plain = model.scheme.plain;
  ExpertMatrices one{make_expert(model, inter, hidden),
                     make_expert(model, inter, hidden),
                     make_expert(model, hidden, inter),
                     {},
                     {},
                     {}};
  if (shape.expert_bias)
    one.gate_bias = make(plain, 1, inter), one.up_bias = make(plain, 1, inter), one.down_bias = make(plain, 1, hidden);
  for (std::int32_t e = 0; e < shape.experts; ++e) {
    weights.experts.push_back(one);
    for (WeightMatrix* matrix :
         {&weights.experts.back().gate, &weights.experts.back().up, &weights.experts.back().down})
      if (matrix->plain.present())
        matrix->plain.data = matrix->plain.data + static_cast<std::int64_t>(size_bytes(plain)) * expert_shift * e;
  }
  if (!all) return;
  weights.router = make(plain, shape.experts, hidden);
  if (shape.router_bias) weights.router_bias = make(plain, 1, shape.experts);
  if (shape.selection_bias) weights.selection_bias = make(DType::f32, 1, shape.experts);
  if (const std::int64_t shared = shape.shared_intermediate; shared > 0)
    weights.shared = {
        make(plain, shared, hidden), make(plain, shared, hidden), make(plain, hidden, shared), {}, {}, {}};
  if (shape.shared_gate) weights.shared_gate = make(plain, 1, hidden);
}

HostMatrix ModelWeights::make(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t spare) {
  return {memory_.emplace_back(repeated_values(dtype, rows * columns + spare, columns)).data(), dtype, rows, columns};
}

WeightMatrix ModelWeights::make_expert(const ModelCase& model, std::int64_t rows, std::int64_t columns) {
  const OperandQuant& quant = model.scheme.quant.weights;
  if (!quant.quantized()) return make(model.scheme.plain, rows, columns, expert_shift * model.shape.experts);
  return quantized_.emplace_back(quantize_weights(make(DType::f32, rows, columns), quant)).matrix;
}

std::vector<std::byte> repeated_values(DType dtype, std::int64_t count, std::int64_t width) {
  std::vector<double> few = test::normal(4099, 1);  // a prime, so that no two rows begin alike
  for (double& value : few) value /= std::sqrt(static_cast<double>(width));
  const std::vector<unsigned char> period = test::encode(dtype, few);
  std::vector<std::byte> values(static_cast<std::size_t>(count) * size_bytes(dtype));
  for (std::size_t at = 0; at < values.size(); at += period.size())
    std::memcpy(values.data() + at, period.data(), std::min(period.size(), values.size() - at));
  return values;
}

}  // namespace moecl::bench
