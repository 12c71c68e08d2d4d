#include <moecl/context.hpp>

#include <algorithm>

#include "dispatch/transports/transport.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// A transport and its result in the probe of a pair.
struct Probed {
  const Transport* transport;
  double rate;      ///< GB/s; 0: it does not work
  std::string why;  ///< why it does not work
};

Probed probe(const Transport& transport, StreamView from, StreamView to) {
  if (std::string why = transport.reject(from, to); !why.empty()) return {&transport, 0, std::move(why)};
  try {
    const double rate = transport.probe(from, to);
    return {&transport, rate, rate == 0 ? "other bytes arrived in the probe" : ""};
  } catch (const Error& error) {
    // Drivers may offer peer memory that they cannot provide, which only rules out this transport. A failure of another
    // transport is an error of the device.
    if (transport.peer_memory() == nullptr) throw;
    return {&transport, 0, error.what()};
  }
}

std::string rates_of(const std::vector<Probed>& all) {
  std::string text;
  for (const Probed& one : all)
    if (one.rate > 0)
      text += fmt::format("{}{:.1f} GB/s by {}", text.empty() ? "" : " and ", one.rate, name(one.transport->kind()));
  return text + " in the probe";
}

/// Whether peer memory failed between two NVIDIA devices. Only these are expected to have it.
bool misses_peer_memory(const Probed& one, StreamView from, StreamView to) {
  return one.transport->peer_memory() != nullptr && one.rate == 0 && from.device->caps.nv_compute_capability != 0 &&
         to.device->caps.nv_compute_capability != 0;
}

}  // namespace

const char* name(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::shared_context:
      return "shared_context";
    case TransportKind::staged:
      return "staged";
    case TransportKind::peer_window:
      return "peer_window";
    case TransportKind::shared_memory:
      return "shared_memory";
    case TransportKind::mpi:
      break;
  }
  return "mpi";
}

std::vector<TransportKind> transport_kinds() {
  return {TransportKind::shared_context, TransportKind::staged, TransportKind::peer_window,
          TransportKind::shared_memory, TransportKind::mpi};
}

Transports make_transports(std::shared_ptr<PeerMemory> peer_memory) {
  Transports all;
  all.push_back(make_shared_context());
  all.push_back(make_staged());
  all.push_back(make_peer_window(std::move(peer_memory)));
  all.push_back(make_shared_memory());
  all.push_back(make_mpi());
  return all;
}

TransportChoice choose_transport(const Transports& all, StreamView from, StreamView to,
                                 std::optional<TransportKind> wanted) {
  if (wanted) {
    const Transport& asked = *all[static_cast<std::size_t>(*wanted)];
    const std::string why = asked.reject(from, to);
    require(why.empty(), "transport: {}: {}", name(*wanted), why);
    return {*wanted, "asked for"};
  }
  const bool one_context = from.context == to.context;
  std::vector<Probed> probed;
  for (const auto& transport : all) {
    if (one_context && transport->peer_memory() != nullptr) continue;  // one context: ranks share its memory anyway
    if (transport->between_processes()) continue;
    const Probed& last = probed.emplace_back(probe(*transport, from, to));
    if (last.rate > 0 && last.transport->shares_events() && from.device == to.device)
      return {last.transport->kind(), fmt::format("same device, {:.1f} GB/s in the probe", last.rate)};
  }
  // Peer memory wins whatever its rate: copies of the probe's size take as long as the host waits for them, by any
  // transport, whereas kernels that store into peer memory wait for nobody.
  const auto worse = [](const Probed& a, const Probed& b) {
    const auto rank = [](const Probed& of) { return std::pair(of.rate > 0 && of.transport->peer_memory(), of.rate); };
    return rank(a) < rank(b);
  };
  const Probed& best = *std::max_element(probed.begin(), probed.end(), worse);
  if (best.rate == 0)
    fail(ErrorCode::device_error, "transport: no way from {} to {} gives the right bytes", from.device->caps.name,
         to.device->caps.name);
  TransportChoice choice{best.transport->kind(),
                         fmt::format("{}, {}", one_context ? "one context" : "different contexts", rates_of(probed))};
  for (const Probed& one : probed)
    if (misses_peer_memory(one, from, to)) {
      choice.reason += "; no peer window: " + one.why;
      to.context->log(LogLevel::warning, fmt::format("transport from '{}' to '{}': {}", from.device->caps.name,
                                                     to.device->caps.name, choice.reason));
    }
  return choice;
}

}  // namespace moecl
