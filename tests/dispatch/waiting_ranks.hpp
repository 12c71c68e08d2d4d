#pragma once
// Ranks whose kernels wait for each other, as kernels on different GPUs do.
#include <optional>

#include "tests/cases/waiting_peer_memory.hpp"
#include "tests/dispatch/ranks.hpp"

namespace moecl::test {

/// Whether kernels of two contexts are sure to run at the same time on the first device. They are on a CPU, and on the
/// GPU that a CPU simulates.
inline bool kernels_run_at_once() {
  const DeviceCaps& caps = devices()[0]->caps();
  return caps.type == DeviceType::cpu || caps.name.find("simulated") != std::string::npos;
}

/// Two ranks of the first device, each with a context of its own.
struct TwoContexts {
  std::unique_ptr<Context> contexts[2];
  std::vector<Stream> streams;
  std::optional<RankGroup> group;

  explicit TwoContexts(std::chrono::milliseconds deadline = std::chrono::milliseconds(60000)) {
    ContextOptions traced;
    traced.trace = true;
    for (std::unique_ptr<Context>& context : contexts) {
      context = Context::create({*devices()[0]->stream.view().device}, traced);
      streams.emplace_back(*context, 0, false);
    }
    group.emplace(std::vector<StreamView>(streams.begin(), streams.end()),
                  GroupOptions{deadline, TransportKind::peer_window, std::make_shared<WaitingPeerMemory>()});
  }
};

}  // namespace moecl::test
