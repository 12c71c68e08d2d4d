#include <moecl/device_tensor.hpp>

#include <algorithm>

namespace moecl {

DeviceTensor::DeviceTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> shape) {
  std::uint64_t bytes = size_bytes(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  buffer = Buffer(context, std::max<std::uint64_t>(bytes, 1));
  view = TensorView(buffer.view(), dtype, shape);
}

}  // namespace moecl
