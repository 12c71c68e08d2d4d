// Which transport a pair of ranks gets: by capability, by a check of the data, and by time.
#include <moecl/context.hpp>

#include <algorithm>
#include <numeric>

#include "dispatch/exchange.hpp"
#include "dispatch/rank_group.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::uint64_t probe_bytes = 1 << 20;
constexpr int probe_rounds = 3;

/// Copies a pattern; GB/s of the best round, or 0 when other bytes arrived. Stops the host.
template <class Copy>
double probe(StreamView from, StreamView to, Copy copy) {
  std::vector<std::uint32_t> pattern(probe_bytes / 4), arrived(probe_bytes / 4);
  std::iota(pattern.begin(), pattern.end(), 0x6d6f6563U);
  const Buffer source(*from.context, probe_bytes), target(*to.context, probe_bytes);
  write_blocking(from, source.view(), pattern.data(), probe_bytes);
  double best = 0;
  for (int round = 0; round < probe_rounds; ++round) {
    enqueue_fill(to, target.view(), 0);
    to.finish();
    const auto begin = std::chrono::steady_clock::now();
    copy(source.view(), target.view());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    read_blocking(to, target.view(), arrived.data(), probe_bytes);
    if (arrived != pattern) return 0;
    best = std::max(best, static_cast<double>(probe_bytes) / 1e9 / std::max(seconds.count(), 1e-9));
  }
  return best;
}

double probe_shared(StreamView from, StreamView to) {
  return probe(from, to, [&](BufferView source, BufferView target) {
    enqueue_copy(to, source, target);
    to.finish();
  });
}

/// @param peer_memory  Where chunks stand; null: in pinned host memory
double probe_staged(StreamView from, StreamView to, PeerMemory* peer_memory) {
  GroupFate fate;
  StagedCopier copier(to, fate);
  const double rate = probe(from, to, [&](BufferView source, BufferView target) {
    const auto arrived = std::make_shared<UserEvent>(*to.context);
    const auto ready = std::make_shared<const Event>();
    _cl_event* const done = arrived->handle();
    enqueue_marker(to, {{&done, 1}, nullptr});
    StagedJob job;
    job.from_stream = from, job.from = source, job.to = target;
    job.from_ready = job.to_ready = ready;
    job.arrived = arrived;
    job.peer_memory = peer_memory;
    copier.enqueue(std::move(job));
    fate.wait(*recorded(to));
  });
  if (const std::string why = fate.cause(); !why.empty()) fail(ErrorCode::device_error, "{}", why);
  return rate;
}

/// GB/s through memory of the receiver that the sender's kernels reach; 0, with the reason, where there is none.
double probe_peer_window(StreamView from, StreamView to, PeerMemory& peer_memory, std::string& why) {
  why = peer_memory.reject(to, from);
  if (!why.empty()) return 0;
  try {
    const double rate = probe_staged(from, to, &peer_memory);
    if (rate == 0) why = "other bytes arrived in the probe";
    return rate;
  } catch (const Error& error) {
    why = error.what();
    return 0;
  }
}

TransportChoice choose_between_contexts(StreamView from, StreamView to, PeerMemory& peer_memory, double staged) {
  std::string why;
  const double window = probe_peer_window(from, to, peer_memory, why);
  if (window == 0 && staged == 0)
    fail(ErrorCode::device_error, "transport: no way from {} to {} gives the right bytes", from.device->caps.name,
         to.device->caps.name);
  // Copies of the probe's size take as long as the host takes to wait, whatever they go through; kernels that store
  // into peers' memory wait for nobody.
  if (window != 0)
    return {TransportKind::peer_window,
            fmt::format("different contexts, {:.1f} GB/s by peers' memory and {:.1f} GB/s staged in the probe", window,
                        staged)};
  TransportChoice choice{TransportKind::staged, fmt::format("different contexts, {:.1f} GB/s in the probe", staged)};
  // Elsewhere nobody expects it.
  if (from.device->caps.nv_compute_capability != 0 && to.device->caps.nv_compute_capability != 0) {
    choice.reason += "; no peer window: " + why;
    to.context->log(LogLevel::warning, fmt::format("transport from '{}' to '{}': {}", from.device->caps.name,
                                                   to.device->caps.name, choice.reason));
  }
  return choice;
}

}  // namespace

const char* name(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::shared_context:
      return "shared_context";
    case TransportKind::staged:
      return "staged";
    case TransportKind::peer_window:
      break;
  }
  return "peer_window";
}

TransportChoice choose_transport(StreamView from, StreamView to, std::optional<TransportKind> wanted,
                                 PeerMemory& peer_memory) {
  const bool shared_possible = from.context == to.context;
  if (wanted) {
    require(*wanted != TransportKind::shared_context || shared_possible, "transport: {} needs ranks of one context",
            name(*wanted));
    if (*wanted == TransportKind::peer_window) {
      const std::string why = peer_memory.reject(to, from);
      require(why.empty(), "transport: {}: {}", name(*wanted), why);
    }
    return {*wanted, "asked for"};
  }
  const double shared = shared_possible ? probe_shared(from, to) : 0;
  if (shared > 0 && from.device == to.device)
    return {TransportKind::shared_context, fmt::format("same device, {:.1f} GB/s in the probe", shared)};
  const double staged = probe_staged(from, to, nullptr);
  if (!shared_possible) return choose_between_contexts(from, to, peer_memory, staged);
  if (shared == 0 && staged == 0)
    fail(ErrorCode::device_error, "transport: no way from {} to {} gives the right bytes", from.device->caps.name,
         to.device->caps.name);
  const TransportKind best = shared >= staged ? TransportKind::shared_context : TransportKind::staged;
  return {best, fmt::format("one context, {:.1f} GB/s by copies and {:.1f} GB/s staged in the probe", shared, staged)};
}

}  // namespace moecl
