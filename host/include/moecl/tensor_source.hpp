#pragma once
#include <moecl/host_tensor.hpp>

#include <string>
#include <string_view>

namespace moecl {

/// Where a layer's tensors are looked up by name: a checkpoint's files, or tensors that were handed over one by one.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// What messages call this source, such as a checkpoint's directory.
  virtual const std::string& origin() const noexcept = 0;
  /// Whether there is such a tensor.
  virtual bool has(std::string_view name) const = 0;
  /// Errors: invalid_data  no such tensor
  virtual HostTensor tensor(std::string_view name) const = 0;

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource& operator=(const TensorSource&) = default;
};

}  // namespace moecl
