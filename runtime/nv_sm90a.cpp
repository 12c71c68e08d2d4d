#include "runtime/nv_sm90a.hpp"

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl::nv_sm90a {
namespace {

constexpr std::string_view mark = "//A90 ";

const ProgramSource probe_source{"nv_sm90a_probe", R"(
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void nv_sm90a_probe(__global int* out) {
  asm volatile("\n//A90 wgmma.fence.sync.aligned;\n" ::: "memory");
  out[get_local_id(0)] = 1;
}
)"};

}  // namespace

bool is_meant_by(std::string_view text) { return text.find(mark) != std::string_view::npos; }

std::string assemble(std::string ptx) {
  while (!ptx.empty() && ptx.back() == '\0') ptx.pop_back();
  constexpr std::string_view target = ".target sm_90", group = ".reqntid";
  const std::size_t found = ptx.find(target);
  if (found == std::string::npos || ptx.find('\0') != std::string::npos)
    fail(ErrorCode::build_failed, "sm_90a: the driver's program is no PTX for sm_90 but {} bytes that begin with '{}'",
         ptx.size(), ptx.substr(0, 40));
  ptx.insert(found + target.size(), "a");
  for (std::size_t at = ptx.find(mark); at != std::string::npos; at = ptx.find(mark, at)) ptx.erase(at, mark.size());
  for (std::size_t at = ptx.find(group); at != std::string::npos; at = ptx.find(group, at)) {
    at = std::min(ptx.find('\n', at), ptx.size());
    ptx.insert(at, "\n.minnctapersm 1");
  }
  return ptx;
}

KernelKey probe() { return {&probe_source, "", "nv_sm90a_probe"}; }

}  // namespace moecl::nv_sm90a
