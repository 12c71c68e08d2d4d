#include "tests/simulated_gpu/opencl_compiler.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace simulated_gpu {
namespace {

// Names that NVIDIA's compiler has and clang does not. Functions are inlined, as calls are not simulated.
const char prelude[] = R"(#define asm __asm__
#define inline inline __attribute__((always_inline))
#define native_exp(x) exp(x)
#define native_recip(x) (1.0f / (x))
)";
const char clang[] = OPENCL_CLANG
    " -x cl -O3 -w -target nvptx64-nvidia-nvcl -S -Xclang -target-cpu -Xclang sm_80 -Xclang -target-feature "
    "-Xclang +ptx75 -Xclang -mlink-builtin-bitcode -Xclang "
    "/usr/lib/clc/nvptx64--nvidiacl.bc ";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Compiled compile(const std::string& source, const std::string& options) {
  std::string folder = (std::filesystem::temp_directory_path() / "simulated_gpu.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return {{}, "no folder for temporary files"};
  const std::filesystem::path in = std::filesystem::path(folder) / "in.cl",
                              out = std::filesystem::path(folder) / "out.ptx",
                              log = std::filesystem::path(folder) / "log";
  std::ofstream(in) << prelude << source;
  const std::string command = clang + options + " -o " + out.string() + " " + in.string() + " 2> " + log.string();
  Compiled compiled;
  if (std::system(command.c_str()) == 0) compiled.ptx = text_of(out);
  compiled.log = text_of(log);
  std::filesystem::remove_all(folder);
  // The target that the driver's programs name.
  if (const std::size_t at = compiled.ptx.find(".target sm_80"); at != std::string::npos)
    compiled.ptx.replace(at, 13, ".target sm_90");
  return compiled;
}

}  // namespace simulated_gpu
