// Every field of the producers' configuration classes, one by one: it is read, is known to change no number, or is
// refused. Any other field gives a warning. The lists are the fields of transformers 5 (GPTQConfig, AwqConfig,
// AutoRoundConfig, FineGrainedFP8Config, FbgemmFp8Config, Mxfp4Config), GPTQModel's QuantizeConfig, AutoRound's
// serialisation, compressed-tensors' QuantizationConfig, QuantizationScheme and QuantizationArgs, ModelOpt's
// hf_quant_config.json and Quark's QConfig, QLayerConfig and QTensorConfig.
#include <moecl/quantization_config.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <iterator>
#include <sstream>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

struct Object {
  const char* what;
  const char* config;
  const char* pointer;  ///< to the object in the configuration
  const char *read, *ignored, *refused;
};

constexpr const char* compressed =
    R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":["Linear"],
       "weights":{"num_bits":8,"type":"float","strategy":"channel"},"input_activations":{"num_bits":8,"type":"float",
       "strategy":"token","dynamic":true}}}})";
constexpr const char* quark =
    R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,
       "scale_format":"e8m0"},"input_tensors":{"dtype":"fp4","qscheme":"per_group","group_size":32,"scale_format":"e8m0",
       "is_dynamic":true}},"layer_quant_config":{}})";
constexpr const char* args_read = "num_bits type symmetric group_size strategy dynamic scale_dtype";
constexpr const char* args_ignored = "actorder zp_dtype observer observer_kwargs block_structure";  // no blocks here
constexpr const char* spec_read =
    "dtype qscheme group_size symmetric is_dynamic round_method scale_format scale_calculation_mode";
constexpr const char* spec_ignored =
    "ch_axis scale_type zero_point_type mx_element_dtype observer_cls qat_spec enable_buffer_reuse max_input_numel";

const Object objects[] = {
    {"GPTQConfig and QuantizeConfig", R"({"quant_method":"gptq","bits":4,"group_size":128})", "",
     "quant_method bits group_size checkpoint_format format pack_dtype dynamic",
     "desc_act sym static_groups act_group_aware damp_percent damp_auto_increment true_sequential mse tokenizer "
     "dataset "
     "model_seqlen block_name_to_quantize module_name_preceding_first_block batch_size pad_token_id use_cuda_fp16 "
     "use_exllama max_input_length exllama_config cache_block_outputs backend lm_head meta quantizer "
     "offload_to_disk offload_to_disk_path model_name_or_path model_file_base_name",
     "is_marlin_format rotation adapter"},
    {"an override of GPTQModel", R"({"quant_method":"gptq","bits":4,"dynamic":{"a":{}}})", "/dynamic/a",
     "bits group_size", "sym desc_act static_groups damp_percent mse", ""},
    {"AwqConfig", R"({"quant_method":"awq","bits":4,"group_size":128})", "",
     "quant_method bits group_size zero_point version modules_to_not_convert",
     "backend do_fuse fuse_max_seq_len modules_to_fuse exllama_config", ""},
    {"AutoRoundConfig", R"({"quant_method":"auto-round","bits":4,"group_size":128})", "",
     "quant_method bits group_size data_type packing_format extra_config act_bits",
     "sym act_group_size act_sym act_dynamic act_data_type scale_dtype iters lr minmax_lr nsamples seqlen batch_size "
     "gradient_accumulate_steps dataset amp low_gpu_mem_usage enable_minmax_tuning enable_norm_bias_tuning "
     "enable_quanted_input block_name_to_quantize to_quant_block_names quant_block_list quant_lm_head "
     "static_kv_dtype backend autoround_version",
     "super_bits super_group_size rotation_config"},
    {"FineGrainedFP8Config", R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128]})",
     "", "quant_method fmt scale_fmt activation_scheme weight_block_size modules_to_not_convert ignored_layers",
     "kv_cache_scheme", "dequantize"},
    {"FbgemmFp8Config", R"({"quant_method":"fbgemm_fp8"})", "",
     "quant_method activation_scale_ub modules_to_not_convert", "", ""},
    {"Mxfp4Config", R"({"quant_method":"mxfp4"})", "", "quant_method modules_to_not_convert", "dequantize", ""},
    {"ModelOpt, config.json", R"({"quant_method":"modelopt","quant_algo":"FP8"})", "",
     "quant_algo exclude_modules ignore", "kv_cache_scheme kv_cache_quant_algo config_groups producer",
     "pre_quant_scale has_zero_point quantized_layers"},
    {"ModelOpt, hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4"}})", "", "quantization", "producer",
     ""},
    {"ModelOpt, quantization", R"({"quantization":{"quant_algo":"NVFP4"}})", "/quantization",
     "quant_algo group_size exclude_modules", "kv_cache_quant_algo", "pre_quant_scale has_zero_point quantized_layers"},
    {"QuantizationConfig", compressed, "", "quant_method format config_groups ignore sparsity_config",
     "kv_cache_scheme quantization_status global_compression_ratio version run_compressed", "transform_config"},
    {"QuantizationScheme", compressed, "/config_groups/g", "targets weights input_activations format", "",
     "output_activations"},
    {"QuantizationArgs of weights", compressed, "/config_groups/g/weights", args_read, args_ignored, ""},
    {"QuantizationArgs of activations", compressed, "/config_groups/g/input_activations", args_read, args_ignored, ""},
    {"QConfig", quark, "", "quant_method global_quant_config layer_quant_config exclude algo_config",
     "export quant_mode softmax_quant_spec kv_cache_quant_config kv_cache_post_rope log_severity_level version",
     "layer_type_quant_config"},
    {"QLayerConfig", quark, "/global_quant_config", "weight input_tensors", "target_device", "output_tensors bias"},
    {"QTensorConfig of weights", quark, "/global_quant_config/weight", spec_read, spec_ignored,
     "is_scale_quant block_size"},
    {"QTensorConfig of inputs", quark, "/global_quant_config/input_tensors", spec_read, spec_ignored,
     "is_scale_quant block_size"},
};

/// What a configuration means here: its schemes, what is ignored, and its warnings.
std::string meaning(const nlohmann::json& config) {
  const QuantizationConfig parsed = QuantizationConfig::parse(config.dump(), "config.json");
  std::string text;
  for (const QuantizedModules& group : parsed.groups) text += describe(group.scheme) + "; ";
  for (const std::string& warning : parsed.warnings) text += warning + "; ";
  return text;
}

nlohmann::json with(const Object& object, const std::string& field, const nlohmann::json& value) {
  nlohmann::json config = nlohmann::json::parse(object.config);
  config[nlohmann::json::json_pointer(object.pointer)][field] = value;
  return config;
}

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(QuantizationFieldsTest, EveryFieldOfEveryMethodIsReadHarmlessOrRefused) {
  for (const Object& object : objects) {
    SCOPED_TRACE(object.what);
    const std::string before = meaning(nlohmann::json::parse(object.config));
    EXPECT_THAT(before, testing::Not(testing::HasSubstr("not known")));
    // No field has such a value. A field that is read must be refused or change the meaning.
    for (const std::string& field : words(object.read)) {
      SCOPED_TRACE(field);
      for (const nlohmann::json& nonsense : {nlohmann::json(-2.5), nlohmann::json({{"none", "such"}})}) {
        try {
          EXPECT_NE(meaning(with(object, field, nonsense)), before) << nonsense << " is dropped";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("config.json"));
        }
      }
    }
    for (const std::string& field : words(object.ignored))
      EXPECT_EQ(meaning(with(object, field, "anything")), before) << field;
    for (const std::string& field : words(object.refused)) {
      SCOPED_TRACE(field);
      for (const nlohmann::json& nothing : {nlohmann::json(), nlohmann::json(false), nlohmann::json::object()})
        EXPECT_EQ(meaning(with(object, field, nothing)), before);
      const Error error = error_of([&] { meaning(with(object, field, {{"a", 1}})); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr('"' + field + '"'));
    }
    EXPECT_EQ(meaning(with(object, "tea", nullptr)), before);
    EXPECT_THAT(meaning(with(object, "tea", "green")),
                testing::HasSubstr(": \"tea\" is not known and changes nothing here"));
  }
}

}  // namespace
}  // namespace moecl::test
