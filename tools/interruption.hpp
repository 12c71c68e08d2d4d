#pragma once
#include <csignal>

namespace moecl::cli {

inline volatile std::sig_atomic_t noted_signal = 0;

/// For Ctrl-C, or a machine that is taken away: notes the first signal; a second one, of either kind, ends the command.
inline void note_interruption() {
  for (const int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int number) {
      noted_signal = number;
      for (const int next : {SIGINT, SIGTERM}) std::signal(next, SIG_DFL);
    });
}

/// The noted signal; 0: none.
inline int interruption() { return noted_signal; }

}  // namespace moecl::cli
