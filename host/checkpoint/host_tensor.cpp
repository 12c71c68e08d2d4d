#include <moecl/host_tensor.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace moecl {

std::int64_t HostTensor::elements() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string HostTensor::describe() const {
  return fmt::format("{}: {}[{}]", name, moecl::name(dtype), fmt::join(shape, ", "));
}

}  // namespace moecl
