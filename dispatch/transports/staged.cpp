// Transport between any two ranks of a process: a thread of the receiver copies through pinned host memory, in chunks.
#include "dispatch/stream_events.hpp"
#include "dispatch/transports/probe.hpp"
#include "dispatch/transports/staged_copy.hpp"
#include "dispatch/transports/transport.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

class Staged final : public Transport {
 public:
  TransportKind kind() const noexcept override { return TransportKind::staged; }
  std::string reject(StreamView /*from*/, StreamView /*to*/) const override { return {}; }
  double probe(StreamView from, StreamView to) const override { return probe_staged(from, to, nullptr); }
};

}  // namespace

double probe_staged(StreamView from, StreamView to, PeerMemory* peer_memory) {
  GroupFate fate;
  StagedCopier copier(to, fate);
  const double rate = probe_copies(from, to, [&](BufferView source, BufferView target) {
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

std::unique_ptr<const Transport> make_staged() { return std::make_unique<Staged>(); }

}  // namespace moecl
