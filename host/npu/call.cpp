#include "host/npu/call.hpp"

#include <moecl/buffer.hpp>

#include <string_view>

namespace moecl::npu {
namespace {

bool is_float(DType dtype) { return dtype == DType::f64 || is_activation_dtype(dtype); }

/// Whether an operand with this name is a weight matrix, by the names that the operators use.
bool is_weights(std::string_view name) { return name == "weight" || name == "x2"; }

}  // namespace

void expect_output(const char* name, const TensorView& given, const TensorView& inferred) {
  if (!inferred.present()) return;
  require(given.dtype == inferred.dtype && shape_of(given) == shape_of(inferred), "{}: expected {}, got {}", name,
          inferred, given.present() ? given.describe() : "nothing");
}

void expect_operand_memory(const char* name, const TensorView& view) { expect_memory(view, name, is_weights(name)); }

void fill_tail(StreamView stream, const TensorView& output, Tail tail) {
  if (!output.present() || tail == Tail::untouched) return;
  require(output.contiguous(), "output: {} is not contiguous", output);
  constexpr std::uint32_t nan_pattern = 0x7fff7fff, integer_pattern = 0x5a5a5a5a;  // NaN in f32, f16 and bf16
  enqueue_fill(stream, output.buffer.slice(0, output.size_bytes()),
               tail == Tail::zero       ? 0
               : is_float(output.dtype) ? nan_pattern
                                        : integer_pattern);
}

}  // namespace moecl::npu
