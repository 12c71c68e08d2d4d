#pragma once
#include <moecl/host_tensor.hpp>
#include <moecl/model_config.hpp>
#include <moecl/tensor_source.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A Hugging Face model directory: config.json beside model.safetensors, or beside model.safetensors.index.json and the
/// shards that the index names. hf_quant_config.json is read only if config.json states no quantization. Each shard is
/// opened when one of its tensors is first asked for. It stays open as long as this object or one of its tensors lives.
///
/// Threads:  const members may be called from several threads.
class Checkpoint final : public TensorSource {
 public:
  /// @param router_spec_path  As ModelConfig::load's; empty: none.
  /// Errors: io_error      no such directory, or a file of it is missing or unreadable
  ///         invalid_data  config.json, the index or the file is malformed; a shard's path leaves the directory
  ///         unsupported   the model type is unknown (the message lists the known ones)
  static Checkpoint open(const std::string& dir, const std::string& router_spec_path = {});
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint() override;

  const std::string& dir() const noexcept;
  const std::string& origin() const noexcept override { return dir(); }
  const ModelConfig& config() const noexcept;
  /// Paths of the files that this object reads: the config files, and the weights' file or the index and its shards.
  /// hf_quant_config.json may be missing.
  std::vector<std::string> files() const;
  /// Whether there is such a tensor. Errors: as `tensor`, if the directory has no index
  bool has(std::string_view name) const override;
  /// Errors: invalid_data  no such tensor in the directory, or not in the shard that the index names
  ///         unsupported   its dtype is one that moecl does not know
  ///         io_error      its shard is missing or unreadable
  HostTensor tensor(std::string_view name) const override;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
