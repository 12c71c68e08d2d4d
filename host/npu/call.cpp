#include "host/npu/call.hpp"

#include <moecl/buffer.hpp>

#include <string_view>

namespace moecl::npu {
namespace {

bool is_float(DType dtype) { return dtype == DType::f64 || is_activation_dtype(dtype); }

/// By the operators' own names.
bool is_weights(std::string_view name) { return name == "weight" || name == "x2"; }

}  // namespace

void expect_output(const char* name, const TensorView& given, const TensorView& inferred) {
  if (!inferred.present()) return;
  require(given.dtype == inferred.dtype && shape_of(given) == shape_of(inferred), "{}: expected {}, got {}", name,
          inferred.describe(), given.present() ? given.describe() : "nothing");
}

void expect_memory(const char* name, const TensorView& view) {
  if (!view.present()) return;
  require(view.rank <= TensorView::max_rank, "{}: {} dimensions", name, view.rank);
  std::uint64_t last = 0;
  for (int d = 0; d < view.rank; ++d) {
    require(view.shape[d] >= 0, "{}: negative extent in {}", name, view.describe());
    if (view.shape[d] == 0) return;
    std::uint64_t reach = 0;
    require(view.stride[d] >= 0 &&
                !__builtin_mul_overflow(static_cast<std::uint64_t>(view.shape[d] - 1),
                                        static_cast<std::uint64_t>(view.stride[d]), &reach) &&
                !__builtin_add_overflow(last, reach, &last),
            "{}: strides of {} overflow", name, view.describe());
  }
  require(is_weights(name) || view.stride[view.rank - 1] == 1 || view.shape[view.rank - 1] == 1,
          "{}: the last dimension of {} has stride {}, expected 1", name, view.describe(), view.stride[view.rank - 1]);
  require(view.buffer.handle != nullptr && last < view.buffer.size_bytes / size_bytes(view.dtype),
          "{}: {} needs {} elements, its memory has {} bytes", name, view.describe(), last + 1, view.buffer.size_bytes);
}

void fill_tail(StreamView stream, const TensorView& output, Tail tail) {
  if (!output.present() || tail == Tail::untouched) return;
  require(output.contiguous(), "output: {} is not contiguous", output.describe());
  constexpr std::uint32_t nan_pattern = 0x7fff7fff, integer_pattern = 0x5a5a5a5a;  // NaN in f32, f16 and bf16
  enqueue_fill(stream, output.buffer.slice(0, output.size_bytes()),
               tail == Tail::zero       ? 0
               : is_float(output.dtype) ? nan_pattern
                                        : integer_pattern);
}

}  // namespace moecl::npu
