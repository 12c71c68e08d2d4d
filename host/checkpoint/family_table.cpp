#include "host/checkpoint/families/deepseek.hpp"
#include "host/checkpoint/families/one_by_one.hpp"
#include "host/checkpoint/families/stacked.hpp"
#include "host/checkpoint/families/w1_w3_w2.hpp"
#include "host/checkpoint/model_families.hpp"

namespace moecl {
namespace {

using namespace families;

constexpr ModelFamily table[] = {
    mixtral,    qwen2_moe,     qwen3_moe,      qwen3_next,     qwen3_vl_moe, qwen3_omni_moe, qwen3_5_moe,
    olmoe,      deepseek_v2,   deepseek_v3,    glm4_moe,       dots1,        glm4_moe_lite,  glm_moe_dsa,
    solar_open, mimo_v2_flash, nemotron_h,     exaone_moe,     phimoe,       granitemoe,     granitemoehybrid,
    llama4,     gpt_oss,       hunyuan_v1_moe, ernie4_5_moe,   minimax,      minimax_m2,     lfm2_moe,
    jamba,      afmoe,         bailing_moe,    bailing_hybrid, kimi_linear,  hy_v3,          step3,
    arctic,     dbrx,
};

// Source: each model's released model.safetensors.index.json; vLLM's step3_vl.py
constexpr WrapperFamily wrappers[] = {
    {"llama4", "text_config", "language_model.model."},
    {"qwen3_vl_moe", "text_config", "model.language_model."},
    {"qwen3_omni_moe", "thinker_config.text_config", "thinker.model."},
    {"qwen3_5_moe", "text_config", "model.language_model."},
    {"glm4v_moe", "text_config", "model.language_model."},
    {"deepseek_vl_v2", "language_config", "language.model."},
    {"internvl_chat", "llm_config", "language_model.model."},
    {"kimi_k25", "text_config", "language_model.model."},
    {"kimi_vl", "text_config", "language_model.model."},
    {"step3_vl", "text_config", "model."},
};

constexpr const char* two_kinds_of_experts =
    "text and vision tokens have experts of their own, of different widths, and a layer here has one kind; a router "
    "spec "
    "(host/ROUTER_SPEC.md) describes either as a layer";
// Source: transformers 5, modeling_ernie4_5_vl_moe.py; the name of the released config.json of ERNIE-4.5-VL
constexpr RefusedFamily refused[] = {
    {"ernie4_5_vl_moe", two_kinds_of_experts},
    {"ernie4_5_moe_vl", two_kinds_of_experts},
};

// Source: deepseek-ai/DeepSeek-V2 and DeepSeek-V3, modeling_deepseek.py, class MoEGate
constexpr SelectionMethod selection_methods[] = {
    {"greedy", false, GroupScore::max, false},
    {"group_limited_greedy", true, GroupScore::max, false},
    {"noaux_tc", true, GroupScore::sum_of_top_2, true},
};

}  // namespace

bool is_stacked(const NetworkNames& names) {
  return std::string_view(names.name).find("{expert}") == std::string_view::npos;
}
bool has_stacked_experts(const ModelFamily& family) {
  for (const NetworkNames& form : family.expert_names)
    if (form.name != nullptr && !is_stacked(form)) return false;
  return true;
}

const ModelFamily* find_family(std::string_view model_type) {
  for (const ModelFamily& family : table)
    for (const char* name : family.model_types)
      if (name != nullptr && model_type == name) return &family;
  return nullptr;
}

std::span<const ModelFamily> model_families() { return table; }
std::span<const WrapperFamily> wrapper_families() { return wrappers; }

const WrapperFamily* find_wrapper(std::string_view model_type) {
  for (const WrapperFamily& wrapper : wrappers)
    if (model_type == wrapper.model_type) return &wrapper;
  return nullptr;
}

std::span<const RefusedFamily> refused_families() { return refused; }

const RefusedFamily* find_refused_family(std::string_view model_type) {
  for (const RefusedFamily& family : refused)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

std::vector<const char*> model_type_names() {
  std::vector<const char*> names;
  for (const ModelFamily& family : table)
    for (const char* name : family.model_types)
      if (name != nullptr) names.push_back(name);
  for (const WrapperFamily& wrapper : wrappers) names.push_back(wrapper.model_type);
  return names;
}

const SelectionMethod* find_selection_method(std::string_view name) {
  for (const SelectionMethod& method : selection_methods)
    if (name == method.name) return &method;
  return nullptr;
}

}  // namespace moecl
