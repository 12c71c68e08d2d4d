#pragma once
#include <moecl/dtype.hpp>
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace moecl {

/// What write_random_checkpoint writes.
struct RandomCheckpoint {
  std::string config_json;   ///< of a known family, as released
  int layers = 1;            ///< MoE layers to write, from the model's first one on
  std::int64_t experts = 0;  ///< how many of the config's experts to write; 0: all
  DType dtype = DType::bf16;
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = std::uint64_t{2} << 30;  ///< a shard ends before it would exceed this
  /// Quantization of the routed and shared experts' matrices, stored as in released checkpoints; none: plain.
  std::optional<QuantScheme> scheme = {};
  std::string router_spec = {};        ///< text of a router spec for `config_json`, as ModelConfig::parse's
  std::string origin = "config.json";  ///< what messages call `config_json`: its path
  /// Called before each tensor is written: `written` of `total` tensors are done. An exception ends the writing.
  std::function<void(std::int64_t written, std::int64_t total)> before_tensor = {};
};

/// Writes a checkpoint of MoE blocks alone (no attention, no embeddings) with random weights in the family's released
/// layout: config.json beside model.safetensors, or beside an index and shards when one shard does not hold it.
///
/// Weights are normal with deviation 1 / sqrt(fan in), so outputs stay near the inputs' size. A tensor's values depend
/// on the seed and its name alone, so a slice of experts has the same values. The directory appears when it is
/// complete; a failed call leaves nothing behind.
///
/// Errors: invalid_argument  `dir` exists and is not empty, dtype, layers or experts are out of range, or widths do not
///                           fit the scheme's units
///         invalid_data, unsupported  as ModelConfig::parse; no such scheme is released with experts in one tensor
///         io_error          a file cannot be written
void write_random_checkpoint(const std::string& dir, const RandomCheckpoint& checkpoint);

}  // namespace moecl
