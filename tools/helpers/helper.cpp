// What the library does in a process of its own, since a driver may die of it. The library starts this program.
//   helper compile         compiles programs, which come on standard input, a socket, and answers there
//   helper probe UUID...   prints which of those devices' kernels reach whose memory
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
  // A compiler that never comes back would outlive who waited for it.
  std::thread([] {
    pollfd owner{STDIN_FILENO, POLLRDHUP, 0};
    while (poll(&owner, 1, -1) < 0) continue;
    _exit(0);
  }).detach();
  moecl::serve_compiler(STDIN_FILENO);
  _exit(0);  // drivers have threads of their own, whose end need not be waited for
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
