// What `moecl op` reads: CASE.json, a NUL, CASE.safetensors. The call is made up to its outputs' shapes, with memory
// that nobody reads; the case's own tensors stand in for what it gave.
#include <moecl/error.hpp>

#include <algorithm>

#include "tests/fuzz/memory_folder.hpp"
#include "tools/operator_binding.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moecl::fuzz::MemoryFolder folder;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  folder.write("case.json", input.substr(0, end));
  folder.write("case.safetensors", input.substr(std::min(end + 1, size)));
  try {
    const auto opened = moecl::cli::OperatorCase::open(folder.file("case.json"));
    try {
      const bool collective = moecl::npu::find_operator(opened.operator_name()).collective;
      // The handle is no object: only a device would look at it.
      const auto call = moecl::cli::bind_case(opened, collective ? 0 : -1, [](const moecl::HostTensor& tensor) {
        return moecl::BufferView{reinterpret_cast<_cl_mem*>(1), 0, tensor.size_bytes};
      });
      for (const auto& output : call->outputs()) output.view->size_bytes();
    } catch (const moecl::Error&) {
    }
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
