#pragma once
// A thread that checks whether the processes of a group are alive.
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "dispatch/meeting.hpp"
#include "dispatch/processes/link.hpp"

namespace moecl {

/// Ends the group in this process once it has ended elsewhere, or once a peer has died.
class Watch {
 public:
  /// @param links  of the ranks of this process
  Watch(std::vector<Link*> links, GroupFate& fate)
      : thread_([this, links = std::move(links), &fate] { look(links, fate); }) {}
  ~Watch() {
    closing_ = true;
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static constexpr std::chrono::milliseconds between_looks{5};

  void look(const std::vector<Link*>& links, GroupFate& fate) noexcept {
    while (!closing_) {
      try {
        for (Link* const link : links)
          if (const std::string cause = link->look(); !cause.empty()) return fate.end(cause);
      } catch (const std::exception& error) {
        return fate.end(error.what());
      }
      std::this_thread::sleep_for(between_looks);
    }
  }

  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace moecl
