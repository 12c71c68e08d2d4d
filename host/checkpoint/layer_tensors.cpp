#include "host/checkpoint/layer_tensors.hpp"

#include <fmt/ranges.h>

#include <utility>

#include "host/checkpoint/name_template.hpp"
#include "host/checkpoint/quantized_tensors.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

std::vector<std::int64_t> without_leading_ones(std::vector<std::int64_t> shape, std::size_t rank) {
  while (shape.size() > rank && shape.front() == 1) shape.erase(shape.begin());
  return shape;
}

}  // namespace

NetworkParts::NetworkParts(const ExpertTensorNames& names, std::int64_t hidden, std::int64_t width,
                           std::int64_t experts, std::int64_t expert) {
  const auto part = [&](const std::string& name, std::int64_t rows, std::int64_t columns, bool transposed) {
    TensorPart of = TensorPart::whole(substitute(name, "expert", std::to_string(expert)), rows, columns);
    if (names.stacked) of.experts = experts, of.expert = expert;
    of.transposed = transposed;
    of.flat = names.flat;
    return of;
  };
  if (!names.gate.empty()) gate = part(names.gate, width, hidden, names.transposed);
  up = part(names.up, width, hidden, names.transposed);
  down = part(names.down, hidden, width, names.transposed || names.flat);
  if (names.gate != names.up) return;
  gate.stored_rows = up.stored_rows = 2 * width;
  gate.step = up.step = names.alternating ? 2 : 1;
  up.first_row = names.alternating ? 1 : width;
}

/// How the matrix is quantized; nullptr when it is plain.
const QuantizedModules* LayerTensors::quantized(const TensorPart& part) const {
  const std::string module = module_of(part.name);
  const QuantizedModules* modules = quantization_.find(module);
  const bool plain =
      modules != nullptr && quantization_.may_ignore(module) && !QuantizedTensors(source_, *modules, part).present();
  return plain ? nullptr : modules;
}

bool LayerTensors::has(const TensorPart& part) const {
  const QuantizedModules* modules = quantization_.find(module_of(part.name));
  return source_.has(part.name) || (modules != nullptr && QuantizedTensors(source_, *modules, part).named());
}

bool LayerTensors::fits(const TensorPart& part) const {
  if (!has(part)) return false;
  const std::vector<std::int64_t> shape = part.stored_shape();
  return quantized(part) != nullptr || without_leading_ones(source_.tensor(part.name).shape, shape.size()) == shape;
}

std::vector<std::vector<std::string>> LayerTensors::needed(const TensorPart& part) const {
  const QuantizedModules* modules = quantized(part);
  if (modules == nullptr) return {{part.name}};
  return QuantizedTensors(source_, *modules, part).needed();
}

WeightMatrix LayerTensors::matrix(const TensorPart& part) const {
  const QuantizedModules* modules = quantized(part);
  return modules == nullptr ? WeightMatrix(plain(part)) : QuantizedTensors(source_, *modules, part).matrix();
}

std::optional<float> LayerTensors::input_scale(const TensorPart& part) const {
  const QuantizedModules* modules = quantized(part);
  return modules == nullptr ? std::nullopt : QuantizedTensors(source_, *modules, part).input_scale();
}

HostMatrix LayerTensors::plain(const TensorPart& part) const {
  HostMatrix matrix = view(part, part.stored_shape());
  matrix.row_stride = part.step * (part.transposed ? 1 : part.columns);
  matrix.column_stride = part.transposed ? part.stored_rows : 1;
  return matrix;
}

HostMatrix LayerTensors::vector(const TensorPart& part) const {
  HostMatrix matrix =
      view(part, part.experts > 0 ? std::vector{part.experts, part.stored_rows} : std::vector{part.stored_rows});
  matrix.rows = 1;
  matrix.columns = part.rows;
  matrix.row_stride = part.rows * part.step;
  matrix.column_stride = part.step;
  return matrix;
}

/// A matrix [rows, columns] that begins at the part's first element. The tensor must have the given shape.
HostMatrix LayerTensors::view(const TensorPart& part, const std::vector<std::int64_t>& shape) const {
  const HostTensor tensor = source_.tensor(part.name);
  if (without_leading_ones(tensor.shape, shape.size()) != shape)
    fail(ErrorCode::invalid_data, "{}: {}, but config.json makes it [{}]", source_.origin(), tensor.describe(),
         fmt::join(shape, ", "));
  if (!is_activation_dtype(tensor.dtype))
    fail(ErrorCode::invalid_data, "{}: {} is not f32, f16 or bf16, and config.json says of no quantization of it",
         source_.origin(), tensor.describe());
  const std::int64_t first =
      part.expert * part.stored_rows * part.columns + part.first_row * (part.transposed ? 1 : part.columns);
  return {tensor.data + first * static_cast<std::int64_t>(size_bytes(tensor.dtype)), tensor.dtype, part.rows,
          part.columns};
}

}  // namespace moecl
