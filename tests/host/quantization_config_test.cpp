#include <moecl/quantization_config.hpp>

#include <gmock/gmock.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

QuantizationConfig parse(const std::string& json) { return QuantizationConfig::parse(json, "config.json"); }

constexpr const char* expert = "model.layers.3.mlp.experts.7.gate_proj";

struct Released {
  const char* what;
  const char* json;
  StoredForm form;
  const char* scheme;
};

// The fields are those of released checkpoints, or of what their producers' documentation says they write.
const Released released[] = {
    {"GPTQ int4", R"({"bits":4,"group_size":128,"damp_percent":0.1,"desc_act":false,"static_groups":false,"sym":true,
       "true_sequential":true,"model_name_or_path":null,"quant_method":"gptq","modules_in_block_to_quantize":null})",
     StoredForm::gptq, "weights u4 in groups of 128 with zero points, activations plain"},
    {"GPTQ int8, one group, act-order",
     R"({"bits":8,"group_size":-1,"desc_act":true,"sym":true,"quant_method":"gptq","checkpoint_format":"gptq_v2",
       "pack_dtype":"int32","lm_head":false,"meta":{"quantizer":["gptqmodel:4.1.0"]}})",
     StoredForm::gptq_v2, "weights u8 per row with zero points, activations plain"},
    {"AWQ", R"({"bits":4,"group_size":128,"modules_to_not_convert":["gate"],"quant_method":"awq","version":"gemm",
       "zero_point":true})",
     StoredForm::awq, "weights u4 in groups of 128 with zero points, activations plain"},
    {"AWQ, old names", R"({"w_bit":4,"q_group_size":64,"quant_method":"awq","version":"GEMM","zero_point":false})",
     StoredForm::awq, "weights u4 in groups of 64, activations plain"},
    {"AutoRound", R"({"quant_method":"auto-round","bits":4,"group_size":128,"sym":true,"data_type":"int",
       "packing_format":"auto_round:auto_gptq","autoround_version":"0.5.1"})",
     StoredForm::gptq, "weights u4 in groups of 128 with zero points, activations plain"},
    {"AutoRound in AWQ's packing", R"({"quant_method":"auto-round","bits":4,"group_size":32,"sym":false,
       "packing_format":"auto_round:auto_awq"})",
     StoredForm::awq, "weights u4 in groups of 32 with zero points, activations plain"},
    {"compressed-tensors W4A16", R"({"config_groups":{"group_0":{"input_activations":null,"output_activations":null,
       "targets":["Linear"],"weights":{"actorder":"group","block_structure":null,"dynamic":false,"group_size":128,
       "num_bits":4,"observer":"minmax","observer_kwargs":{},"strategy":"group","symmetric":true,"type":"int"}}},
       "format":"pack-quantized","ignore":["lm_head","re:.*gate$"],"kv_cache_scheme":null,
       "quant_method":"compressed-tensors","quantization_status":"compressed"})",
     StoredForm::words, "weights u4 in groups of 128, activations plain"},
    {"compressed-tensors W4A16, zero points", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":
       {"group_size":32,"num_bits":4,"strategy":"group","symmetric":false,"type":"int"}}},"format":"pack-quantized",
       "quant_method":"compressed-tensors"})",
     StoredForm::words, "weights u4 in groups of 32 with zero points, activations plain"},
    {"compressed-tensors W8A16", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,
       "strategy":"channel","symmetric":true,"type":"int"}}},"format":"pack-quantized",
       "quant_method":"compressed-tensors"})",
     StoredForm::words, "weights u8 per row, activations plain"},
    {"compressed-tensors W8A8", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,
       "strategy":"channel","symmetric":true,"type":"int","dynamic":false},"input_activations":{"num_bits":8,
       "strategy":"token","symmetric":true,"dynamic":true,"type":"int"}}},"format":"int-quantized",
       "quant_method":"compressed-tensors"})",
     StoredForm::rows, "weights i8 per row, activations i8 per row"},
    {"compressed-tensors W8A8, asymmetric activations", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":
       {"num_bits":8,"strategy":"channel","type":"int"},"input_activations":{"num_bits":8,"strategy":"token",
       "symmetric":false,"dynamic":true,"type":"int"}}},"format":"int-quantized","quant_method":"compressed-tensors"})",
     StoredForm::rows, "weights i8 per row, activations i8 per row with zero points"},
    {"compressed-tensors FP8, dynamic", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,
       "strategy":"channel","type":"float"},"input_activations":{"num_bits":8,"strategy":"token","dynamic":true,
       "type":"float"}}},"format":"float-quantized","quant_method":"compressed-tensors"})",
     StoredForm::rows, "weights f8_e4m3 per row, activations f8_e4m3 per row"},
    {"compressed-tensors FP8, static", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,
       "strategy":"tensor","type":"float"},"input_activations":{"num_bits":8,"strategy":"tensor","dynamic":false,
       "type":"float"}}},"format":"naive-quantized","quant_method":"compressed-tensors","quantization_status":"frozen"})",
     StoredForm::rows, "weights f8_e4m3 per tensor, activations f8_e4m3 per tensor, static"},
    {"compressed-tensors FP8 blocks", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,
       "strategy":"block","block_structure":[128,128],"type":"float"},"input_activations":{"num_bits":8,
       "strategy":"group","group_size":128,"dynamic":true,"type":"float"}}},"format":"float-quantized",
       "quant_method":"compressed-tensors"})",
     StoredForm::rows, "weights f8_e4m3 in blocks of 128 x 128, activations f8_e4m3 in groups of 128"},
    {"compressed-tensors NVFP4", R"({"config_groups":{"group_0":{"targets":["Linear"],"format":"nvfp4-pack-quantized",
       "weights":{"num_bits":4,"group_size":16,"strategy":"tensor_group","type":"float"},"input_activations":
       {"num_bits":4,"group_size":16,"strategy":"tensor_group","dynamic":"local","type":"float"}}},
       "format":"mixed-precision","quant_method":"compressed-tensors"})",
     StoredForm::rows,
     "weights f4_e2m1 in groups of 16 with e4m3 scales, activations f4_e2m1 in groups of 16 with e4m3 scales, static"},
    {"compressed-tensors MXFP4", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,
       "group_size":32,"strategy":"group","type":"float"}}},"format":"mxfp4-pack-quantized",
       "quant_method":"compressed-tensors"})",
     StoredForm::rows, "weights f4_e2m1 in groups of 32 with e8m0 scales, activations plain"},
    {"fp8 blocks", R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]})",
     StoredForm::rows, "weights f8_e4m3 in blocks of 128 x 128, activations f8_e4m3 in groups of 128"},
    {"fp8 blocks, scales that are powers of two", R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
       "scale_fmt":"ue8m0","weight_block_size":[128,128]})",
     StoredForm::rows,
     "weights f8_e4m3 in blocks of 128 x 128 with power-of-two scales rounded up, "
     "activations f8_e4m3 in groups of 128 with power-of-two scales rounded up"},
    {"fp8 blocks, MiniMax-M2", R"({"activation_scheme":"dynamic","fmt":"float8_e4m3fn","quant_method":"fp8",
       "weight_block_size":[128,128]})",
     StoredForm::rows, "weights f8_e4m3 in blocks of 128 x 128, activations f8_e4m3 in groups of 128"},
    {"fp8, static", R"({"activation_scheme":"static","quant_method":"fp8","ignored_layers":["lm_head"]})",
     StoredForm::rows, "weights f8_e4m3 per tensor, activations f8_e4m3 per tensor, static"},
    {"fbgemm", R"({"activation_scale_ub":1200.0,"modules_to_not_convert":["lm_head"],"quant_method":"fbgemm_fp8"})",
     StoredForm::rows,
     "weights f8_e4m3 per row, activations f8_e4m3 per row, amax at most 1200, scales of at least 4.36e-06"},
    {"fbgemm, another limit", R"({"activation_scale_ub":3.5,"quant_method":"fbgemm_fp8"})", StoredForm::rows,
     "weights f8_e4m3 per row, activations f8_e4m3 per row, amax at most 3.5, scales of at least 4.36e-06"},
    {"gpt-oss", R"({"modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router","lm_head"],
       "quant_method":"mxfp4"})",
     StoredForm::blocks, "weights f4_e2m1 in groups of 32 with e8m0 scales, activations plain"},
    {"ModelOpt FP8, hf_quant_config.json", R"({"producer":{"name":"modelopt","version":"0.23"},"quantization":
       {"quant_algo":"FP8","kv_cache_quant_algo":"FP8","exclude_modules":["lm_head","*router*"]}})",
     StoredForm::rows, "weights f8_e4m3 per tensor, activations f8_e4m3 per tensor, static"},
    {"ModelOpt NVFP4, config.json", R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"],
       "producer":{"name":"modelopt"},"kv_cache_scheme":{"num_bits":8}})",
     StoredForm::rows,
     "weights f4_e2m1 in groups of 16 with e4m3 scales, activations f4_e2m1 in groups of 16 with e4m3 scales, static"},
    {"Quark MXFP4", R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group",
       "group_size":32,"scale_format":"e8m0","is_dynamic":false,"symmetric":null},"input_tensors":{"dtype":"fp4",
       "qscheme":"per_group","group_size":32,"scale_format":"e8m0","is_dynamic":true}},"exclude":["lm_head"],
       "layer_quant_config":{},"export":{"weight_format":"real_quantized"}})",
     StoredForm::rows,
     "weights f4_e2m1 in groups of 32 with e8m0 scales, "
     "activations f4_e2m1 in groups of 32 with e8m0 scales of amax rounded to nearest"},
    {"Quark MXFP6, ceil", R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp6_e2m3",
       "qscheme":"per_group","group_size":32,"scale_format":"e8m0","scale_calculation_mode":"ceil"},"input_tensors":
       {"dtype":"fp6_e2m3","qscheme":"per_group","group_size":32,"scale_format":"e8m0","is_dynamic":true,
       "scale_calculation_mode":"ceil"}}})",
     StoredForm::rows,
     "weights f6_e2m3 in groups of 32 with e8m0 scales, "
     "activations f6_e2m3 in groups of 32 with e8m0 scales of amax rounded up"},
    {"Quark MXFP4, floor", R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4",
       "qscheme":"per_group","group_size":32,"scale_format":"e8m0","scale_calculation_mode":"floor"},"input_tensors":
       {"dtype":"fp4","qscheme":"per_group","group_size":32,"scale_format":"e8m0","is_dynamic":true,
       "scale_calculation_mode":"floor"}}})",
     StoredForm::rows,
     "weights f4_e2m1 in groups of 32 with e8m0 scales, activations f4_e2m1 in groups of 32 with e8m0 scales"},
    {"compressed-tensors MXFP4, both", R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,
       "group_size":32,"strategy":"group","type":"float"},"input_activations":{"num_bits":4,"group_size":32,"strategy":
       "group","type":"float","dynamic":true}}},"format":"mxfp4-pack-quantized","quant_method":"compressed-tensors"})",
     StoredForm::rows,
     "weights f4_e2m1 in groups of 32 with e8m0 scales, "
     "activations f4_e2m1 in groups of 32 with e8m0 scales of amax rounded up from 1.75"},
    {"ModelOpt MXFP8", R"({"quant_method":"modelopt","quant_algo":"MXFP8"})", StoredForm::rows,
     "weights f8_e4m3 in groups of 32 with e8m0 scales, "
     "activations f8_e4m3 in groups of 32 with e8m0 scales rounded up"},
    {"Quark FP8",
     R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp8_e4m3","qscheme":"per_tensor"},
       "input_tensors":{"dtype":"fp8_e4m3","qscheme":"per_tensor","is_dynamic":false}}})",
     StoredForm::rows, "weights f8_e4m3 per tensor, activations f8_e4m3 per tensor, static"},
};

TEST(QuantizationConfigTest, EveryProducersFormIsRead) {
  for (const Released& row : released) {
    SCOPED_TRACE(row.what);
    const QuantizationConfig config = parse(row.json);
    EXPECT_TRUE(config.present());
    const QuantizedModules* found = config.find(expert);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->form, row.form);
    EXPECT_THAT(config.warnings, testing::IsEmpty());
    EXPECT_EQ(describe(found->scheme), row.scheme);
    EXPECT_EQ(config.find("lm_head") == nullptr, !config.ignored.empty() && config.method != "awq");
  }
}

TEST(QuantizationConfigTest, IgnoredModulesStayPlain) {
  const QuantizationConfig config = parse(R"({"quant_method":"fp8","modules_to_not_convert":["lm_head","mlp.gate",
    "model.layers.0","model.layers.*.self_attn","re:.*shared_experts.*","re:.*[02468]\\.up_proj$"]})");
  const auto plain = [&](const char* module) { return config.find(module) == nullptr; };
  EXPECT_TRUE(plain("lm_head"));
  EXPECT_TRUE(plain("model.layers.3.mlp.gate"));
  EXPECT_FALSE(plain("model.layers.3.mlp.gate_proj"));
  EXPECT_TRUE(plain("model.layers.0.mlp.experts.1.down_proj"));
  EXPECT_FALSE(plain("model.layers.01.mlp.experts.1.down_proj"));
  EXPECT_TRUE(plain("model.layers.5.self_attn.q_proj"));
  EXPECT_FALSE(plain("model.layers.5.self_attention.q_proj"));
  EXPECT_TRUE(plain("model.layers.5.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(plain("model.layers.5.mlp.experts.12.up_proj"));
  EXPECT_FALSE(plain("model.layers.5.mlp.experts.13.up_proj"));
  // AutoAWQ finds "gate" within "gate_proj", others do not: such a module may be plain or quantized.
  const QuantizationConfig awq = parse(R"({"quant_method":"awq","bits":4,"modules_to_not_convert":["gate"]})");
  EXPECT_EQ(awq.find("model.layers.3.mlp.gate"), nullptr);
  EXPECT_NE(awq.find(expert), nullptr);
  EXPECT_TRUE(awq.may_ignore(expert));
  EXPECT_FALSE(awq.may_ignore("model.layers.3.mlp.experts.7.up_proj"));
}

TEST(QuantizationConfigTest, GroupsMayTargetSomeModules) {
  const QuantizationConfig config = parse(R"({"quant_method":"compressed-tensors","format":"mixed-precision",
    "config_groups":{"group_0":{"format":"pack-quantized","targets":["re:.*mlp\\.experts\\..*"],"weights":{"num_bits":4,
    "type":"int","strategy":"group","group_size":64}},"group_1":{"format":"float-quantized","targets":
    ["re:.*self_attn.*"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}})");
  ASSERT_NE(config.find(expert), nullptr);
  EXPECT_EQ(config.find(expert)->form, StoredForm::words);
  EXPECT_EQ(config.find("model.layers.0.self_attn.q_proj")->scheme.weights.type, CodeType::f8_e4m3);
  EXPECT_EQ(config.find("model.layers.0.mlp.shared_expert.up_proj"), nullptr);
  // The class of all matrices yields to a group that names the module.
  const QuantizationConfig both = parse(R"({"quant_method":"compressed-tensors","format":"int-quantized",
    "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"strategy":"channel"}},
    "group_1":{"targets":["re:.*down_proj$"],"weights":{"num_bits":8,"strategy":"tensor"}}}})");
  EXPECT_EQ(both.find(expert)->scheme.weights.group, ScaleGroup::per_channel());
  EXPECT_EQ(both.find("model.layers.3.mlp.experts.7.down_proj")->scheme.weights.group, ScaleGroup::per_tensor());
}

TEST(QuantizationConfigTest, GptqOverridesFieldsOfSomeModules) {
  const QuantizationConfig config = parse(R"({"quant_method":"gptq","bits":4,"group_size":128,"dynamic":
    {"-:.*shared_expert.*":{},"+:.*\\.7\\..*":{"bits":8,"group_size":32},".*\\.8\\..*":{"group_size":-1}}})");
  EXPECT_EQ(config.find("model.layers.3.mlp.shared_expert.up_proj"), nullptr);
  EXPECT_EQ(describe(config.find(expert)->scheme), "weights u8 in groups of 32 with zero points, activations plain");
  EXPECT_EQ(describe(config.find("model.layers.3.mlp.experts.8.gate_proj")->scheme),
            "weights u4 per row with zero points, activations plain");
  EXPECT_EQ(describe(config.find("model.layers.3.mlp.experts.9.gate_proj")->scheme),
            "weights u4 in groups of 128 with zero points, activations plain");
  const QuantizationConfig some = parse(R"({"quant_method":"gptq","bits":4,"group_size":128,
    "modules_in_block_to_quantize":[["self_attn.q_proj"],["mlp.experts.7.gate_proj","mlp.experts.7.up_proj"]]})");
  EXPECT_NE(some.find(expert), nullptr);
  EXPECT_EQ(some.find("model.layers.3.mlp.experts.7.down_proj"), nullptr);
  const QuantizationConfig round = parse(R"({"quant_method":"auto-round","bits":4,"group_size":128,"extra_config":
    {"model.layers.3.mlp.experts.7.gate_proj":{"bits":8},"model.layers.3.mlp.gate":{"bits":16}}})");
  EXPECT_EQ(round.find(expert)->scheme.weights.type, CodeType::u8);
  EXPECT_EQ(round.find("model.layers.3.mlp.gate"), nullptr);
}

TEST(QuantizationConfigTest, WhatIsNotKnownIsNamedBesideWhatIs) {
  struct Refused {
    const char* json;
    ErrorCode code;
    const char* message;
  };
  const Refused cases[] = {
      {R"({"quant_method":"hqq"})", ErrorCode::unsupported, "\"hqq\" is not one of gptq, awq, auto-round"},
      {R"({"bits":4})", ErrorCode::invalid_data, "no \"quant_method\""},
      {R"({"quant_method":"gptq","bits":3})", ErrorCode::unsupported, "gptq with 3 bits; known are 4 and 8"},
      {R"({"quant_method":"gptq"})", ErrorCode::invalid_data, "no \"bits\""},
      {R"({"quant_method":"gptq","bits":4,"group_size":0})", ErrorCode::invalid_data, "\"group_size\" is 0"},
      {R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})", ErrorCode::unsupported, "gptq, gptq_v2"},
      {R"({"quant_method":"gptq","bits":4,"dynamic":{"+:(":{}}})", ErrorCode::invalid_data, "no regular expression"},
      {R"({"quant_method":"awq","bits":4,"version":"gemv"})", ErrorCode::unsupported, "known is gemm"},
      {R"({"quant_method":"awq","bits":4,"modules_to_not_convert":"gate"})", ErrorCode::invalid_data, "not a list"},
      {R"({"quant_method":"fp8","weight_block_size":[128]})", ErrorCode::invalid_data, "not two numbers above 0"},
      {R"({"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"static"})", ErrorCode::unsupported,
       "needs activation_scheme dynamic"},
      {R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})", ErrorCode::unsupported, "is not one of FP8"},
      {R"({"quant_method":"compressed-tensors","format":"int-quantized"})", ErrorCode::invalid_data, "config_groups"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24","config_groups":{"g":{"weights":{}}}})",
       ErrorCode::unsupported, "\"marlin-24\" is not one of pack-quantized"},
      {R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"g":{"weights":
         {"type":"float"}}}})",
       ErrorCode::invalid_data, "int-quantized does not hold float codes of 8 bits"},
      {R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"g":{"weights":
         {"strategy":"channel"},"input_activations":{"type":"float","strategy":"token","dynamic":true}}}})",
       ErrorCode::unsupported, "f8_e4m3 activations with i8 weights"},
      {R"({"quant_method":"compressed-tensors","format":"int-quantized","sparsity_config":{"format":"sparse-24-bitmask"},
         "config_groups":{"g":{"weights":{}}}})",
       ErrorCode::unsupported, "sparse-24-bitmask"},
      {R"({"quant_method":"fp8","scale_fmt":"e5m3"})", ErrorCode::unsupported, "\"e5m3\" is not one of float, ue8m0"},
      {R"({"quant_method":"fp8","scale_fmt":"ue8m0","activation_scheme":"static"})", ErrorCode::unsupported,
       "come from the largest magnitude alone"},
      {R"({"quant_method":"fbgemm_fp8","activation_scale_ub":0})", ErrorCode::unsupported, "amax at most 0"},
      {R"({"quant_method":"auto-round","bits":4,"act_bits":8})", ErrorCode::unsupported, "activations of 8 bits"},
      {R"({"quant_method":"auto-round","bits":4,"extra_config":{"a.b":{"data_type":"mx_fp"}}})", ErrorCode::unsupported,
       "\"mx_fp\" is not int"},
      {R"({"quant_method":"quark","algo_config":[{"name":"rotation"}],"global_quant_config":{"weight":{"dtype":"int8",
         "qscheme":"per_tensor"}}})",
       ErrorCode::unsupported, "\"rotation\" is not one of awq"},
      {R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,
         "scale_format":"e8m0","scale_calculation_mode":"round"}}})",
       ErrorCode::unsupported, "\"round\" is not one of even, floor, ceil"},
      {R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":16,
         "scale_format":"e4m3"}}})",
       ErrorCode::unsupported, "\"e4m3\" is not one of e8m0, float32"},
      {R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"int3","qscheme":"per_tensor"}}})",
       ErrorCode::unsupported, "\"int3\" is not one of int8, fp8_e4m3"},
  };
  for (const Refused& row : cases) {
    SCOPED_TRACE(row.json);
    const Error error = error_of([&] { parse(row.json); });
    EXPECT_EQ(error.code(), row.code);
    EXPECT_THAT(error.what(), HasSubstr(row.message));
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
}

TEST(ModulePatternTest, AHostileExpressionEndsSoon) {
  const ModulePattern nested("re:(a*)*(a*)*(a*)*b", "test");
  EXPECT_FALSE(nested.matches(std::string(200, 'a')));
  const ModulePattern stars(std::string(2000, '*') + "b", "test");
  EXPECT_FALSE(stars.matches(std::string(2000, 'a')));
  EXPECT_EQ(error_of([] { ModulePattern("re:" + std::string(5000, 'a'), "test"); }).code(), ErrorCode::invalid_data);
  // Found by fuzzing: the number of a back reference overflowed inside the standard library.
  EXPECT_EQ(error_of([] { ModulePattern("re:.*\\" + std::string(19, '9'), "test"); }).code(), ErrorCode::invalid_data);
  EXPECT_TRUE(ModulePattern("re:.*\\.123456789\\..*", "test").matches("layers.123456789.up"));
}

}  // namespace
}  // namespace moecl::test
