// The library starts this program for work that it does in a separate process, since a driver may die of that work.
//   helper compile         compiles the programs that come on standard input, a socket, and answers there
//   helper probe UUID...   prints which of these devices' kernels reach the memory of which other device
#include <cstdio>
#include <exception>
#include <poll.h>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "runtime/compiler.hpp"
#include "runtime/peer_probe.hpp"

namespace {

int compile() {
  // Without this thread, a compiler that never returns would outlive the process that waited for it.
  std::thread([] {
    pollfd owner{STDIN_FILENO, POLLRDHUP, 0};
    while (poll(&owner, 1, -1) < 0) continue;
    _exit(0);
  }).detach();
  moecl::serve_compiler(STDIN_FILENO);
  _exit(0);  // does not wait for the end of the drivers' threads
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view task = argc > 1 ? argv[1] : "";
  try {
    if (task == "compile") return compile();
    if (task == "probe") {
      moecl::peer_probe::print_verdicts({argv + 2, argv + argc});
      return 0;
    }
    std::fprintf(stderr, "helper: libmoecl starts this program; it is not for the command line\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "helper %s: %s\n", argv[1], error.what());
  }
  std::fflush(stderr);
  _exit(1);
}
