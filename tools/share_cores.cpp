#include "tools/share_cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sched.h>
#include <unistd.h>
#include <vector>

namespace moecl::cli {
namespace {

constexpr const char* threads_of_pocl = "POCL_MAX_PTHREAD_COUNT";

struct Cores {
  std::vector<int> allowed;  ///< cores that this process may run on
  bool is_bound = false;     ///< a launcher has chosen them
};
Cores cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Cores cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {{}, true};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.allowed.push_back(core);
  cores.is_bound = CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
  return cores;
}

/// Binds this thread, and the threads that it starts from now on.
bool bind_to(const std::vector<int>& cores, int first, int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = 0; i < count; ++i) CPU_SET(cores[static_cast<std::size_t>(first + i)], &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

std::string choose_share(int process, int processes) {
  for (const char* const own : {threads_of_pocl, "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"})
    if (std::getenv(own) != nullptr) return {};
  const Cores cores = cores_of_process();
  const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), allowed = static_cast<int>(cores.allowed.size()),
            share = std::max(1, std::min(allowed > 0 ? allowed : online, online / processes));
  const bool has_own = processes <= allowed && process >= 0 && process < processes;  // launchers may tell wrong numbers
  const bool binds = has_own && !cores.is_bound && bind_to(cores.allowed, process * share, share);
  setenv(threads_of_pocl, std::to_string(share).c_str(), 1);
  return fmt::format(", {} processes share {} cores: {} thread{} of PoCL each{}", processes, online, share,
                     share == 1 ? "" : "s",
                     binds ? fmt::format(", bound to {} of its own", share == 1 ? "a core" : "cores") : "");
}

}  // namespace

std::string share_cores(int process, int processes) {
  if (processes < 2) return {};
  static const std::string chosen = choose_share(process, processes);  // a command may open several groups
  return chosen;
}

}  // namespace moecl::cli
