#pragma once
#include <csignal>

namespace moecl::cli {

inline volatile std::sig_atomic_t noted_signal = 0;

/// Ctrl-C, or a machine that is taken away: the first signal is noted, the second, whichever, ends the command at once.
inline void note_interruption() {
  for (const int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int number) {
      noted_signal = number;
      for (const int next : {SIGINT, SIGTERM}) std::signal(next, SIG_DFL);
    });
}

/// The signal that was noted; 0: none.
inline int interruption() { return noted_signal; }

}  // namespace moecl::cli
