#include <moecl/checkpoint.hpp>
#include <moecl/safetensors.hpp>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/quantization_methods.hpp"
#include "host/checkpoint/shard_index.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr const char* config_name = "config.json";
constexpr const char* modelopt_name = "hf_quant_config.json";
constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

}  // namespace

struct Checkpoint::State {
  std::string dir;
  ModelConfig config;
  /// The shard of each tensor; absent with a single file.
  std::optional<std::unordered_map<std::string, std::string>> shard_of;
  std::mutex mutex;
  std::map<std::string, SafetensorsFile> shards;  // opened so far; insertion moves none of them

  std::string path(const std::string& file) const { return (std::filesystem::path(dir) / file).string(); }

  const SafetensorsFile& shard(const std::string& file) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = shards.find(file);
    if (found == shards.end()) found = shards.emplace(file, SafetensorsFile::open(path(file))).first;
    return found->second;
  }
};

Checkpoint::Checkpoint(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const std::string& dir, const std::string& router_spec_path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) fail(ErrorCode::io_error, "{} is not a directory", dir);
  auto state = std::make_unique<State>();
  state->dir = dir;
  if (!fs::exists(state->path(config_name), ignored)) fail(ErrorCode::io_error, "{} has no {}", dir, config_name);
  const bool single = fs::exists(state->path(single_name), ignored);
  if (!single && !fs::exists(state->path(index_name), ignored))
    fail(ErrorCode::io_error, "{} has neither {} nor {}", dir, single_name, index_name);
  state->config = ModelConfig::load(state->path(config_name), router_spec_path);
  QuantizationConfig& quantization = state->config.moe.quantization;
  const std::string modelopt = state->path(modelopt_name);
  if (!quantization.present() && fs::exists(modelopt, ignored))
    quantization = parse_quantization(read_json_file(modelopt), modelopt);
  if (!single) state->shard_of = parse_shard_index(read_json_file(state->path(index_name)), state->path(index_name));
  return Checkpoint(std::move(state));
}

const std::string& Checkpoint::dir() const noexcept { return state_->dir; }
const ModelConfig& Checkpoint::config() const noexcept { return state_->config; }

std::vector<std::string> Checkpoint::files() const {
  std::set<std::string> names = {config_name, modelopt_name, state_->shard_of ? index_name : single_name};
  if (state_->shard_of)
    for (const auto& [tensor, shard] : *state_->shard_of) names.insert(shard);
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(state_->path(name));
  return paths;
}

bool Checkpoint::has(std::string_view name) const {
  return state_->shard_of ? state_->shard_of->count(std::string(name)) != 0 : state_->shard(single_name).has(name);
}

HostTensor Checkpoint::tensor(std::string_view name) const {
  if (!has(name)) fail(ErrorCode::invalid_data, "{} has no tensor \"{}\"", dir(), name);
  if (!state_->shard_of) return state_->shard(single_name).tensor(name);
  const std::string& file = state_->shard_of->at(std::string(name));
  const SafetensorsFile& shard = state_->shard(file);
  if (!shard.has(name))
    fail(ErrorCode::invalid_data, "{}: the index puts tensor \"{}\" in {}, which does not have it", dir(), name, file);
  return shard.tensor(name);
}

}  // namespace moecl
