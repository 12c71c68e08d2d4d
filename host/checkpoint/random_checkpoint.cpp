#include <moecl/model_config.hpp>
#include <moecl/random_checkpoint.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <unistd.h>
#include <vector>

#include "host/checkpoint/config_fields.hpp"
#include "host/checkpoint/family_config.hpp"
#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/layer_tensors.hpp"
#include "host/checkpoint/model_families.hpp"
#include "host/checkpoint/normal_source.hpp"
#include "host/checkpoint/released_form.hpp"
#include "host/checkpoint/safetensors_format.hpp"
#include "runtime/atomic_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

namespace fs = std::filesystem;

/// The dtype's name in config.json.
const char* config_name(DType dtype) {
  return dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
}

/// The layers to write: the model's first ones with experts.
std::vector<int> choose_layers(const ModelConfig& config, int count) {
  std::vector<int> layers;
  for (int layer = 0; layer < config.num_layers && static_cast<int>(layers.size()) < count; ++layer)
    if (config.has_experts(layer)) layers.push_back(layer);
  require(count >= 1 && static_cast<int>(layers.size()) == count, "{} layers wanted, the model has {} with experts",
          count, layers.size());
  return layers;
}

/// The config.json that describes only the part that is written.
nlohmann::json edit_config(const RandomCheckpoint& checkpoint, int all_layers, int num_layers) {
  nlohmann::json config = std::move(parse_json(checkpoint.config_json, checkpoint.origin).root);
  const std::string member = find_text_config(config, checkpoint.origin).member;
  nlohmann::json& text = member.empty() ? config : config[pointer_to(member)];
  const auto replace = [&text](const auto& field, std::int64_t value) {
    for (const char* name : field.names)
      if (name != nullptr && text.contains(pointer_to(name))) text[pointer_to(name)] = value;
  };
  for (nlohmann::json& value : text)  // a value for each layer
    if (value.is_array() && static_cast<std::int64_t>(value.size()) == all_layers)
      value.erase(value.begin() + num_layers, value.end());
  replace(layers_field, num_layers);
  text.erase("dtype");
  text["torch_dtype"] = config_name(checkpoint.dtype);
  const ModelFamily* family = find_family(text.value("model_type", ""));
  if (checkpoint.experts > 0) replace(family->experts, checkpoint.experts);
  if (family != nullptr && family->layers_by_type)
    for (const char* name : family->sparse_layers_fields)
      if (text.contains(name) && text[name].is_string())  // a letter for each layer
        text[name] = text[name].get<std::string>().substr(0, static_cast<std::size_t>(num_layers));
  return config;
}

/// The tensors to write, and the fan in of their matrices, which gives the deviation of their values.
class TensorList {
 public:
  TensorList(DType dtype, const std::optional<QuantScheme>& scheme) : dtype_(dtype), scheme_(scheme) {}

  void add_layer(const MoeLayerConfig& layer) {
    const MoeShape& shape = layer.shape;
    const MoeTensorNames& names = layer.names;
    add(names.router, dtype_, {shape.experts, shape.hidden});
    if (shape.router_bias) add(names.router_bias, dtype_, {shape.experts});
    const ModelFamily* family = find_family(layer.family);
    const bool row = family != nullptr && family->selection_bias_row;
    if (shape.selection_bias)
      add(names.selection_bias, DType::f32,
          row ? std::vector<std::int64_t>{1, shape.experts} : std::vector<std::int64_t>{shape.experts});
    const ExpertTensorNames& form = expert_form(names);
    for (std::int32_t e = 0; e < (form.stacked ? 1 : shape.experts); ++e)
      add_network(form, NetworkParts(form, shape.hidden, shape.intermediate, shape.experts, e));
    if (shape.shared_intermediate > 0)
      add_network(names.shared, NetworkParts(names.shared, shape.hidden, shape.shared_intermediate, 0, 0));
    if (shape.shared_gate) add(names.shared_gate, dtype_, {1, shape.hidden});
  }
  /// The released form. With a scheme: the form with a tensor for each expert, if the family has such a form.
  const ExpertTensorNames& expert_form(const MoeTensorNames& names) const {
    for (const ExpertTensorNames& form : names.experts)
      if (scheme_ && !form.stacked) return form;
    return names.experts.front();
  }
  std::vector<HostTensor> take() { return std::move(tensors_); }
  const void* bytes(NormalSource& source, const HostTensor& tensor) {
    const auto found = released_.find(tensor.name);
    if (found == released_.end())
      return source.values(tensor.name, tensor.dtype, static_cast<std::uint64_t>(tensor.elements()), deviation(tensor));
    const auto& [plain, part] = found->second;
    const void* values =
        source.values(plain.name, dtype_, static_cast<std::uint64_t>(plain.elements()), deviation(plain));
    quantized_ = quantize_weights(HostMatrix(values, dtype_, plain.shape[0], plain.shape[1]), scheme_->weights);
    return released_bytes(part, quantized_, number_);
  }

 private:
  float deviation(const HostTensor& tensor) const {
    const auto found = transposed_rows_.find(tensor.name);
    return 1.0F / std::sqrt(static_cast<float>(found == transposed_rows_.end() ? tensor.shape.back() : found->second));
  }
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    const auto bytes = tensor_bytes(dtype, shape);
    require(bytes.has_value(), "{}: size overflows", name);
    tensors_.push_back({name, dtype, std::move(shape), nullptr, *bytes});
  }
  void add_bias(const TensorPart& part, const std::string& bias) {
    add(bias, dtype_, part.experts > 0 ? std::vector{part.experts, part.stored_rows} : std::vector{part.stored_rows});
  }
  void add_network(const ExpertTensorNames& names, const NetworkParts& parts) {
    const auto add_matrix = [&](const TensorPart& part, const std::string& bias) {
      if (scheme_) return add_quantized(part, bias);
      if (part.transposed) transposed_rows_[part.name] = part.columns;
      add(part.name, dtype_, part.stored_shape());
      if (!bias.empty()) add_bias(part, bias);
    };
    if (!names.gate.empty()) add_matrix(parts.gate, names.gate_bias);
    if (names.up != names.gate) add_matrix(parts.up, names.up_bias);
    add_matrix(parts.down, names.down_bias);
  }

  void add_quantized(const TensorPart& part, const std::string& bias) {
    const std::int64_t rows = std::max<std::int64_t>(part.experts, 1) * part.stored_rows;
    const HostTensor plain = {part.name, dtype_, {rows, part.columns}, nullptr, 0};
    for (const auto& [tensor, which] :
         released_tensors(part.name, rows, part.columns, scheme_->weights, part.experts)) {
      released_.emplace(tensor.name, std::pair(plain, which));
      tensors_.push_back(tensor);
    }
    if (!bias.empty()) add_bias(part, bias);
  }

  DType dtype_;
  std::optional<QuantScheme> scheme_;
  std::map<std::string, std::pair<HostTensor, ReleasedTensor::Part>> released_;  ///< the plain matrix, and which part
  QuantizedWeights quantized_;
  std::vector<std::byte> number_;
  std::vector<HostTensor> tensors_;
  std::map<std::string, std::int64_t> transposed_rows_;
};

std::vector<std::vector<HostTensor>> split_into_shards(std::vector<HostTensor> tensors, std::uint64_t shard_bytes) {
  std::vector<std::vector<HostTensor>> shards(1);
  std::uint64_t bytes = 0;
  for (HostTensor& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.size_bytes > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.size_bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

void write_json(const fs::path& path, const nlohmann::json& json) {
  const std::string text = json.dump(1) + "\n";
  AtomicFile file(path.string());
  file.write(text.data(), text.size());
  file.commit();
}

void write_weights(const fs::path& dir, TensorList tensors, const RandomCheckpoint& checkpoint) {
  const std::vector<std::vector<HostTensor>> shards = split_into_shards(tensors.take(), checkpoint.shard_bytes);
  NormalSource source(checkpoint.seed);
  std::int64_t written = 0, all = 0;
  for (const std::vector<HostTensor>& shard : shards) all += static_cast<std::int64_t>(shard.size());
  const auto bytes_of = [&](const HostTensor& tensor) {
    if (checkpoint.before_tensor) checkpoint.before_tensor(written++, all);
    return tensors.bytes(source, tensor);
  };
  if (shards.size() == 1) return write_tensors((dir / "model.safetensors").string(), shards[0], bytes_of);
  nlohmann::json index;
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    write_tensors((dir / file).string(), shards[s], bytes_of);
    for (const HostTensor& tensor : shards[s]) {
      index["weight_map"][tensor.name] = file;
      total += tensor.size_bytes;
    }
  }
  index["metadata"]["total_size"] = total;
  write_json(dir / "model.safetensors.index.json", index);
}

/// A temporary directory beside the final one. `commit` gives it the final name; otherwise it is removed.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(fs::path target) : target_(std::move(target)) {
    temporary_ = target_;
    temporary_ += fmt::format(".{}.tmp", ::getpid());
    check([&](std::error_code& error) { fs::create_directories(temporary_, error); });
  }
  ~AtomicDirectory() {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const fs::path& path() const { return temporary_; }
  void commit() {
    check([&](std::error_code& error) { fs::rename(temporary_, target_, error); });
    sync_folder(fs::absolute(target_).parent_path());
  }

 private:
  template <class Operation>
  void check(Operation operation) const {
    std::error_code error;
    operation(error);
    if (error) fail(ErrorCode::io_error, "cannot make {}: {}", target_.string(), error.message());
  }

  fs::path target_, temporary_;
};

}  // namespace

void write_random_checkpoint(const std::string& dir, const RandomCheckpoint& checkpoint) {
  require(is_activation_dtype(checkpoint.dtype), "random weights are f32, f16 or bf16, not {}", name(checkpoint.dtype));
  require(checkpoint.experts >= 0, "{} experts", checkpoint.experts);
  require(checkpoint.experts == 0 || checkpoint.router_spec.empty(),
          "a router spec says itself how many experts there are");
  const ModelConfig whole = ModelConfig::parse(checkpoint.config_json, checkpoint.origin, checkpoint.router_spec);
  require(checkpoint.experts <= whole.moe.shape.experts, "{} experts wanted, the model has {}", checkpoint.experts,
          whole.moe.shape.experts);
  if (whole.moe.quantization.present())
    fail(ErrorCode::unsupported,
         "{}: quantization by \"{}\"; expected a configuration of plain weights, which a scheme packs",
         checkpoint.origin, whole.moe.quantization.method);
  const std::vector<int> layers = choose_layers(whole, checkpoint.layers);
  nlohmann::json json = edit_config(checkpoint, whole.num_layers, layers.back() + 1);
  if (checkpoint.scheme) {
    const std::string why = reject(*checkpoint.scheme);
    require(checkpoint.scheme->weights.quantized() && why.empty(), "scheme: {}", why.empty() ? "plain weights" : why);
    const std::vector<ExpertTensorNames>& forms = whole.moe.names.experts;
    const bool stacked =
        std::all_of(forms.begin(), forms.end(), [](const ExpertTensorNames& form) { return form.stacked; });
    if (!is_released(*checkpoint.scheme, stacked, whole.moe.shape.shared_intermediate > 0, forms.front().flat))
      fail(ErrorCode::unsupported, "{}: {} with {} is not released; --quantize makes it of plain weights",
           checkpoint.origin, whole.family, describe(*checkpoint.scheme));
    json["quantization_config"] = released_config(*checkpoint.scheme, stacked);
  }
  const ModelConfig config = ModelConfig::parse(json.dump(), checkpoint.origin, checkpoint.router_spec);

  TensorList tensors(checkpoint.dtype, checkpoint.scheme);
  for (const int layer : layers) tensors.add_layer(config.layer(layer));

  fs::path target = fs::path(dir).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/"
  std::error_code ignored;
  require(!fs::exists(target, ignored) || (fs::is_directory(target, ignored) && fs::is_empty(target, ignored)),
          "{} exists and is not an empty directory", dir);
  AtomicDirectory directory(target);
  write_weights(directory.path(), std::move(tensors), checkpoint);
  write_json(directory.path() / "config.json", json);
  directory.commit();
}

}  // namespace moecl
