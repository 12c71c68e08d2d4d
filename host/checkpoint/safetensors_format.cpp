#include "host/checkpoint/safetensors_format.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <set>

#include "runtime/atomic_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::invalid_argument, "tensor name of {} bytes is not valid UTF-8", text.size());
  }
}

void check_tensors(const std::vector<HostTensor>& tensors) {
  std::set<std::string_view> names;
  for (const HostTensor& tensor : tensors) {
    require(tensor.name != "__metadata__", "a tensor cannot be called __metadata__");
    require(names.insert(tensor.name).second, "two tensors are called {}", tensor.name);
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    require(bytes.has_value(), "{}: negative or overflowing shape", tensor.describe());
    require(*bytes == tensor.size_bytes, "{} needs {} bytes, got {}", tensor.describe(), *bytes, tensor.size_bytes);
  }
}

/// The length, the JSON and its padding. transformers loads a file only if it says `format: pt`.
std::string header(const std::vector<HostTensor>& tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t begin = 0;
  for (const HostTensor& tensor : tensors) {
    const std::uint64_t end = begin + tensor.size_bytes;
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_string(tensor.name),
                        safetensors_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

}  // namespace

std::string safetensors_name(DType dtype) {
  std::string text = name(dtype);
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::optional<DType> dtype_from_safetensors(std::string_view text) {
  if (text == "F8_E8M0") return DType::u8;  // exponents; the reader knows what they scale
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const auto dtype = dtype_from_name(lower);
  return dtype && safetensors_name(*dtype) == text ? dtype : std::nullopt;
}

std::optional<std::uint64_t> tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = static_cast<std::int64_t>(size_bytes(dtype));
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

void write_tensors(const std::string& path, std::vector<HostTensor> tensors,
                   const std::function<const void*(const HostTensor&)>& bytes_of) {
  check_tensors(tensors);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const HostTensor& a, const HostTensor& b) { return size_bytes(a.dtype) > size_bytes(b.dtype); });
  AtomicFile file(path);
  const std::string head = header(tensors);
  file.write(head.data(), head.size());
  for (const HostTensor& tensor : tensors) file.write(bytes_of(tensor), tensor.size_bytes);
  file.commit();
}

}  // namespace moecl
