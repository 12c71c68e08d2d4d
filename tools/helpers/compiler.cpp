// compiler: compiles programs for the library, which sends them on standard input, a socket, and reads the answers.
#include "runtime/compiler.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <poll.h>
#include <thread>
#include <unistd.h>

int main() {
  // A compiler that never comes back would outlive who waited for it.
  std::thread([] {
    pollfd owner{STDIN_FILENO, POLLRDHUP, 0};
    while (poll(&owner, 1, -1) < 0) continue;
    _exit(0);
  }).detach();
  try {
    moecl::serve_compiler(STDIN_FILENO);
    _exit(0);  // drivers have threads of their own, whose end need not be waited for
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compiler: %s\n", error.what());
    _exit(1);
  }
}
