#include <moecl/gated_activation.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_activation.hpp"

namespace moecl::npu {
namespace {

int halved_dimension(const SwigluArgs& args) {
  require(args.x.present() && is_activation_dtype(args.x.dtype), "x: expected f32, f16 or bf16, got {}", args.x);
  const std::int64_t dim = args.dim < 0 ? args.dim + args.x.rank : args.dim;
  require(dim >= 0 && dim < args.x.rank, "dim: {} is not in [-{}, {})", args.dim, args.x.rank, args.x.rank);
  require(args.x.shape[dim] % 2 == 0, "x: dimension {} of {} cannot be halved", dim, args.x);
  return static_cast<int>(dim);
}

/// The halved dimension and those after it form one row, whose halves are the halves of that dimension.
void compose(Steps& steps, const SwigluArgs& args) {
  const int dim = halved_dimension(args);
  std::int64_t rows = 1, width = 1;
  for (int d = 0; d < args.x.rank; ++d) (d < dim ? rows : width) *= args.x.shape[d];
  gated_activation::Args activation;
  activation.x = reshaped(args.x, {rows, width});
  activation.out = reshaped(args.y, {rows, width / 2});
  steps.run(activation);
}

}  // namespace

void infer(SwigluArgs& args) {
  const auto dim = static_cast<std::size_t>(halved_dimension(args));
  std::vector<std::int64_t> shape = shape_of(args.x);
  shape[dim] /= 2;
  set_shape(args.y, args.x.dtype, shape);
}

std::uint64_t workspace_bytes(const SwigluArgs& args, const Device& device) { return measure(args, device, compose); }

OperatorCost cost(const SwigluArgs& args) {
  return {args.x.size_bytes() + args.x.size_bytes() / 2, 5 * static_cast<std::uint64_t>(args.x.elements() / 2)};
}

void swiglu(StreamView stream, const SwigluArgs& args, const Call& how) { call(stream, args, how, compose); }

}  // namespace moecl::npu
