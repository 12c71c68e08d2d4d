// The quantization_config of config.json, or hf_quant_config.json, and what it says of some modules.
#include <moecl/error.hpp>
#include <moecl/quantization_config.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto config =
        moecl::QuantizationConfig::parse(std::string(reinterpret_cast<const char*>(data), size), "config.json");
    for (const char* module : {"model.layers.3.mlp.experts.17.gate_proj", "model.layers.0.mlp.gate", "lm_head", ""}) {
      config.may_ignore(module);
      if (const auto* modules = config.find(module); modules != nullptr) describe(modules->scheme);
    }
  } catch (const moecl::Error&) {
  }
  return 0;
}
