// config.json.
#include <moecl/error.hpp>
#include <moecl/model_config.hpp>

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto config =
        moecl::ModelConfig::parse(std::string(reinterpret_cast<const char*>(data), size), "config.json");
    const int first = config.first_moe_layer();
    for (int layer = first; layer < std::min(first + 4, config.num_layers); ++layer)
      if (config.has_experts(layer)) config.layer(layer);
  } catch (const moecl::Error&) {
  }
  return 0;
}
