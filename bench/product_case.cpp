#include "bench/product_case.hpp"

namespace moecl::bench {

Activations::Activations(const Scheme& scheme, std::int64_t k) : dtype(scheme.plain), columns(k) {
  const OperandQuant& quant = scheme.quant.activations;
  if (!quant.quantized()) return;
  scaled = true;
  const bool f4 = quant.type == CodeType::f4_e2m1;
  dtype = f4 ? DType::u8 : *storage_dtype(*quant.type);
  if (f4) columns = (k + 1) / 2;
  if (quant.group.columns == ScaleGroup::whole) return;
  group = quant.group.columns;
  if (quant.scale != ScaleFormat::real) scale_dtype = quant.scale == ScaleFormat::e8m0 ? DType::u8 : DType::f8_e4m3;
}

ProductShape::ProductShape(const ModelCase& model, Which which, const Routing& routing)
    : a_rows(which == Which::gate_up ? routing.tokens : routing.tokens * routing.top_k),
      k(which == Which::gate_up ? model.shape.hidden : model.shape.intermediate),
      n(which == Which::gate_up ? 2 * model.shape.intermediate : model.shape.hidden) {}

std::vector<std::byte> product_activations(const ModelCase& model, const ProductShape& shape) {
  const Activations activations(model.scheme, shape.k);
  const std::int64_t count = shape.a_rows * activations.columns;
  if (activations.dtype != DType::u8) return repeated_values(activations.dtype, count, 1);
  return std::vector<std::byte>(static_cast<std::size_t>(count), std::byte{0x2a});  // pairs of f4 codes: 1 and -1
}

double activation_scale(const ModelCase& model) { return Activations(model.scheme, 1).scaled ? 0x1p-5 : 1; }

}  // namespace moecl::bench
