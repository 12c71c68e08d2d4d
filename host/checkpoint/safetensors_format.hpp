#pragma once
// What the reader and the writer of safetensors files share, and a writer that asks for each tensor's bytes in turn.
#include <moecl/host_tensor.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// "BF16", "F8_E4M3": moecl's own names in capitals.
std::string safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

/// Bytes of a tensor; nullopt when they overflow 63 bits or an extent is negative.
std::optional<std::uint64_t> tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape);

/// As `write_safetensors`, but `bytes_of` gives the bytes of each tensor. It is called once per tensor, in file order;
/// the bytes must stay valid until the next call. `data` of the tensors is ignored.
void write_tensors(const std::string& path, std::vector<HostTensor> tensors,
                   const std::function<const void*(const HostTensor&)>& bytes_of);

}  // namespace moecl
