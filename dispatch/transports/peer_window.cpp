// Transport between contexts whose drivers share memory: the sender stores into memory of the receiver's device.
#include "dispatch/transports/probe.hpp"
#include "dispatch/transports/transport.hpp"

namespace moecl {
namespace {

class PeerWindow final : public Transport {
 public:
  explicit PeerWindow(std::shared_ptr<PeerMemory> memory) : memory_(std::move(memory)) {}

  TransportKind kind() const noexcept override { return TransportKind::peer_window; }
  std::string reject(StreamView from, StreamView to) const override { return memory_->reject(to, from); }
  double probe(StreamView from, StreamView to) const override { return probe_staged(from, to, memory_.get()); }
  PeerMemory* peer_memory() const noexcept override { return memory_.get(); }

 private:
  std::shared_ptr<PeerMemory> memory_;
};

}  // namespace

std::unique_ptr<const Transport> make_peer_window(std::shared_ptr<PeerMemory> memory) {
  return std::make_unique<PeerWindow>(std::move(memory));
}

}  // namespace moecl
