#include "host/checkpoint/quantization_fields.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/check.hpp"

// Sources: the configuration classes of transformers 5 (utils/quantization_config.py), GPTQModel, AutoRound, vLLM
// (model_executor/layers/quantization), compressed-tensors (quant_config.py, quant_args.py), ModelOpt and Quark
// (quantization/config), and the released checkpoints' files.

namespace moecl {
namespace {

enum class Use : std::uint8_t { read, ignored, refused };

struct Members {
  ConfigObject of;
  Use use;
  std::string_view names;     ///< separated by spaces
  const char* why = nullptr;  ///< ignored: why they change no number; refused: what they would change
};

constexpr const char *how_found = "how codes and scales were found", *stored = "the stored tensors show it",
                     *loading = "how another library runs it", *elsewhere = "of other parts of a model",
                     *about = "about the file", *plain = "activations of 16 bits stay plain",
                     *rotated = "inputs are transformed before a product", *twice = "scales have scales";

constexpr Members member_table[] = {
    {ConfigObject::gptq, Use::read,
     "quant_method bits group_size checkpoint_format format pack_dtype dynamic modules_in_block_to_quantize"},
    {ConfigObject::gptq, Use::ignored, "sym desc_act block_name_to_quantize", stored},
    {ConfigObject::gptq, Use::ignored,
     "static_groups act_group_aware damp_percent damp_auto_increment true_sequential mse dataset tokenizer "
     "model_seqlen batch_size pad_token_id cache_block_outputs module_name_preceding_first_block",
     how_found},
    {ConfigObject::gptq, Use::ignored, "lm_head", elsewhere},
    {ConfigObject::gptq, Use::ignored,
     "backend use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length offload_to_disk "
     "offload_to_disk_path",
     loading},
    {ConfigObject::gptq, Use::ignored, "model_name_or_path model_file_base_name quantizer meta", about},
    {ConfigObject::gptq, Use::refused, "is_marlin_format", "codes are packed otherwise"},
    {ConfigObject::gptq, Use::refused, "rotation", rotated},
    {ConfigObject::gptq, Use::refused, "adapter", "products have a second term"},
    {ConfigObject::gptq_override, Use::read, "bits group_size"},
    {ConfigObject::gptq_override, Use::ignored, "sym desc_act", stored},
    {ConfigObject::gptq_override, Use::ignored, "static_groups damp_percent mse", how_found},
    {ConfigObject::awq, Use::read,
     "quant_method bits w_bit group_size q_group_size zero_point version modules_to_not_convert"},
    {ConfigObject::awq, Use::ignored, "backend do_fuse modules_to_fuse fuse_max_seq_len exllama_config", loading},
    {ConfigObject::auto_round, Use::read,
     "quant_method bits group_size data_type packing_format extra_config act_bits zero_point version "
     "modules_to_not_convert"},
    {ConfigObject::auto_round, Use::ignored,
     "sym desc_act scale_dtype block_name_to_quantize to_quant_block_names quant_block_list", stored},
    {ConfigObject::auto_round, Use::ignored, "act_group_size act_sym act_dynamic act_data_type", plain},
    {ConfigObject::auto_round, Use::ignored,
     "iters lr minmax_lr nsamples seqlen batch_size gradient_accumulate_steps dataset amp low_gpu_mem_usage "
     "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input enable_alg_ext damp_percent true_sequential",
     how_found},
    {ConfigObject::auto_round, Use::ignored, "lm_head quant_lm_head static_kv_dtype static_attention_dtype", elsewhere},
    {ConfigObject::auto_round, Use::ignored, "backend", loading},
    {ConfigObject::auto_round, Use::ignored, "autoround_version", about},
    {ConfigObject::auto_round, Use::refused, "super_bits super_group_size", twice},
    {ConfigObject::auto_round, Use::refused, "rotation_config", rotated},
    {ConfigObject::auto_round_override, Use::read, "bits group_size act_bits"},
    {ConfigObject::auto_round_override, Use::ignored, "sym data_type scale_dtype", stored},
    {ConfigObject::auto_round_override, Use::ignored, "act_group_size act_sym act_dynamic act_data_type", plain},
    {ConfigObject::auto_round_override, Use::refused, "super_bits super_group_size", twice},
    {ConfigObject::fp8, Use::read,
     "quant_method fmt scale_fmt activation_scheme weight_block_size modules_to_not_convert ignored_layers"},
    {ConfigObject::fp8, Use::ignored, "kv_cache_scheme", elsewhere},
    {ConfigObject::fp8, Use::refused, "dequantize", "activations stay plain"},
    {ConfigObject::fbgemm_fp8, Use::read, "quant_method activation_scale_ub modules_to_not_convert"},
    {ConfigObject::mxfp4, Use::read, "quant_method modules_to_not_convert"},
    {ConfigObject::mxfp4, Use::ignored, "dequantize", loading},
    {ConfigObject::modelopt_file, Use::read, "quantization quant_method"},
    {ConfigObject::modelopt_file, Use::ignored, "producer", about},
    {ConfigObject::modelopt, Use::read, "quant_method quant_algo group_size exclude_modules ignore"},
    {ConfigObject::modelopt, Use::ignored, "config_groups targets", "quant_algo says the same"},
    {ConfigObject::modelopt, Use::ignored, "kv_cache_scheme kv_cache_quant_algo", elsewhere},
    {ConfigObject::modelopt, Use::ignored, "producer", about},
    {ConfigObject::modelopt, Use::refused, "pre_quant_scale", "inputs are multiplied before a product"},
    {ConfigObject::modelopt, Use::refused, "has_zero_point", "codes count from zero points"},
    {ConfigObject::modelopt, Use::refused, "quantized_layers", "layers have algorithms of their own"},
    {ConfigObject::compressed_tensors, Use::read, "quant_method format config_groups ignore sparsity_config"},
    {ConfigObject::compressed_tensors, Use::ignored, "quantization_status", stored},
    {ConfigObject::compressed_tensors, Use::ignored, "kv_cache_scheme", elsewhere},
    {ConfigObject::compressed_tensors, Use::ignored, "run_compressed", loading},
    {ConfigObject::compressed_tensors, Use::ignored, "global_compression_ratio version", about},
    {ConfigObject::compressed_tensors, Use::refused, "transform_config", rotated},
    {ConfigObject::compressed_tensors_group, Use::read, "targets weights input_activations format"},
    {ConfigObject::compressed_tensors_group, Use::refused, "output_activations", "what a product gives is quantized"},
    {ConfigObject::compressed_tensors_args, Use::read,
     "num_bits type symmetric strategy group_size block_structure dynamic scale_dtype"},
    {ConfigObject::compressed_tensors_args, Use::ignored, "zp_dtype actorder", stored},
    {ConfigObject::compressed_tensors_args, Use::ignored, "observer observer_kwargs", how_found},
    {ConfigObject::quark, Use::read, "quant_method global_quant_config layer_quant_config exclude algo_config"},
    {ConfigObject::quark, Use::ignored, "export", stored},
    {ConfigObject::quark, Use::ignored, "quant_mode", how_found},
    {ConfigObject::quark, Use::ignored, "softmax_quant_spec kv_cache_quant_config kv_cache_post_rope", elsewhere},
    {ConfigObject::quark, Use::ignored, "packed_modules_mapping log_severity_level", loading},
    {ConfigObject::quark, Use::ignored, "version", about},
    {ConfigObject::quark, Use::refused, "layer_type_quant_config",
     "classes of modules have configurations of their own"},
    {ConfigObject::quark_layer, Use::read, "weight input_tensors"},
    {ConfigObject::quark_layer, Use::ignored, "target_device", loading},
    {ConfigObject::quark_layer, Use::refused, "output_tensors", "what a product gives is quantized"},
    {ConfigObject::quark_layer, Use::refused, "bias", "biases are quantized"},
    {ConfigObject::quark_spec, Use::read,
     "dtype qscheme group_size symmetric is_dynamic round_method scale_format scale_calculation_mode"},
    {ConfigObject::quark_spec, Use::ignored, "ch_axis scale_type zero_point_type", stored},
    {ConfigObject::quark_spec, Use::ignored, "mx_element_dtype", "of the dtype mx alone, which is refused"},
    {ConfigObject::quark_spec, Use::ignored, "observer_cls qat_spec", how_found},
    {ConfigObject::quark_spec, Use::ignored, "enable_buffer_reuse max_input_numel", loading},
    {ConfigObject::quark_spec, Use::refused, "block_size", "a scale is of several rows"},
    {ConfigObject::quark_spec, Use::refused, "is_scale_quant", twice},
};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

const Members* find_members(ConfigObject of, std::string_view name) {
  const auto* found = std::find_if(std::begin(member_table), std::end(member_table),
                                   [&](const Members& row) { return row.of == of && lists(row.names, name); });
  return found == std::end(member_table) ? nullptr : found;
}

/// Whether the value is null, false or empty.
bool asks_for_nothing(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

}  // namespace

void check_members(QuantizationConfig& to, const nlohmann::json& object, ConfigObject kind, const std::string& origin) {
  for (const auto& [name, value] : object.items()) {
    const Members* known = find_members(kind, name);
    if (known == nullptr && !value.is_null())
      to.warnings.push_back(fmt::format("{}: \"{}\" is not known and changes nothing here", origin, name));
    if (known != nullptr && known->use == Use::refused && !asks_for_nothing(value))
      fail(ErrorCode::unsupported, "{}: \"{}\" is {}: {}, which is not supported", origin, name, value.dump(),
           known->why);
  }
}

}  // namespace moecl
