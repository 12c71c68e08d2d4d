// What `moecl run` and `moecl verify` read of a directory: config.json, a NUL, the header of model.safetensors, behind
// which there are zeros, as many as it says.
#include <moecl/error.hpp>
#include <moecl/layer_weights.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "tests/fuzz/memory_folder.hpp"

namespace {

std::string bytes_of(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof(length)}; }

/// The last offset in the header, as far as memory goes.
std::uint64_t bytes_of_data(const std::string& header) {
  constexpr std::uint64_t most = 16 << 20;
  std::uint64_t end = 0;
  const auto json = nlohmann::json::parse(header, nullptr, false);
  for (const auto& tensor : json.is_object() ? json : nlohmann::json::object())
    for (const auto& offset : tensor.is_object() ? tensor.value("data_offsets", nlohmann::json()) : nlohmann::json())
      if (offset.is_number_unsigned()) end = std::max(end, offset.get<std::uint64_t>());
  return end <= most ? end : 0;
}

/// The first and the last byte of what a matrix claims can be read.
void touch(const moecl::HostBytes& bytes, std::int64_t first, std::int64_t end) {
  char byte = 0;
  (bytes + first).read(&byte, 1);
  (bytes + (end - 1)).read(&byte, 1);
}
void touch(const moecl::HostMatrix& matrix) {
  if (!matrix.present() || matrix.rows == 0 || matrix.columns == 0) return;
  const std::int64_t last = (matrix.rows - 1) * matrix.row_stride + (matrix.columns - 1) * matrix.column_stride;
  touch(matrix.data, 0, (last + 1) * static_cast<std::int64_t>(size_bytes(matrix.dtype)));
}
void touch(const moecl::WeightMatrix& matrix) {
  touch(matrix.plain);
  touch(matrix.scale);
  const auto& codes = matrix.codes;
  if (codes.present()) touch(codes.data, codes.first_unit() * codes.unit_bytes, codes.end_unit() * codes.unit_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moecl::fuzz::MemoryFolder folder;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string header = input.substr(std::min(end + 1, size));
  folder.write("config.json", input.substr(0, end));
  folder.write("model.safetensors", bytes_of(header.size()) + header, bytes_of_data(header));
  std::optional<moecl::MoeWeights> weights;
  try {
    const auto checkpoint = moecl::Checkpoint::open(folder.path());
    const auto config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
    if (config.shape.experts > 64) return 0;  // of which a file this short has nothing
    weights = find_layer_weights(checkpoint, config);
    stored_options(config, *weights);
  } catch (const moecl::Error&) {
    return 0;
  }
  for (const auto& expert : weights->experts) {
    touch(expert.gate);
    touch(expert.up);
    touch(expert.down);
  }
  return 0;
}
