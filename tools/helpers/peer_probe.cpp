// peer_probe UUID...: which of those devices' kernels reach whose memory. Run by the library, which reads what it says.
#include "runtime/peer_probe.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  try {
    moecl::peer_probe::print_verdicts({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_probe: %s\n", error.what());
    return 1;
  }
}
