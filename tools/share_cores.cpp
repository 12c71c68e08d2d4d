#include "tools/share_cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sched.h>
#include <thread>
#include <unistd.h>

namespace moecl::cli {
namespace {

constexpr const char* threads_of_pocl = "POCL_MAX_PTHREAD_COUNT";

/// That this process may run on: a launcher may have bound it.
int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                      : static_cast<int>(std::thread::hardware_concurrency());
}

std::string choose_share(int processes) {
  for (const char* const own : {threads_of_pocl, "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"})
    if (std::getenv(own) != nullptr) return {};
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
            share = std::max(1, std::min(allowed_cores(), cores / processes));
  setenv(threads_of_pocl, std::to_string(share).c_str(), 1);
  return fmt::format(", {} processes share {} cores: {} thread{} of PoCL each", processes, cores, share,
                     share == 1 ? "" : "s");
}

}  // namespace

std::string share_cores(int processes) {
  if (processes < 2) return {};
  static const std::string chosen = choose_share(processes);  // a command may open several groups
  return chosen;
}

}  // namespace moecl::cli
