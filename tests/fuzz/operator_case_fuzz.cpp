// What `moecl op` reads: CASE.json, a NUL, CASE.safetensors. The case's own tensors stand in for what a call gave.
#include <moecl/error.hpp>

#include <algorithm>

#include "tests/fuzz/memory_folder.hpp"
#include "tools/operator_case.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moecl::fuzz::MemoryFolder folder;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  folder.write("case.json", input.substr(0, end));
  folder.write("case.safetensors", input.substr(std::min(end + 1, size)));
  try {
    const auto opened = moecl::cli::OperatorCase::open(folder.file("case.json"));
    opened.operator_name();
    opened.parameters();
    std::vector<moecl::cli::OutputTensor> outputs;
    for (const std::string& name : opened.tensors.names()) {
      if (name.rfind("out.", 0) != 0) continue;
      const moecl::HostTensor tensor = opened.tensors.tensor(name);
      outputs.push_back({name, tensor.dtype, tensor.shape, std::vector<std::byte>(tensor.size_bytes)});
      tensor.data.read(outputs.back().bytes.data(), tensor.size_bytes);
    }
    check_outputs(opened, outputs);
  } catch (const moecl::Error&) {
  }
  return 0;
}
