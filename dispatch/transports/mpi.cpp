// Links between processes of MPI: each pair sends messages through slots of a fixed size.
#include "dispatch/transports/mpi.hpp"

#include <array>
#include <utility>

#include "dispatch/processes/mpi_process.hpp"
#include "dispatch/processes/patience.hpp"
#include "dispatch/transports/transport.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::array<std::size_t, Link::channels> slot_bytes = {16 << 10, 512 << 10};
constexpr std::size_t slots = 4;

/// One direction of one channel of a pair. Its slots are used in turn.
struct Lane {
  std::array<MpiSlot, slots> slot;
  std::size_t next = 0;
  bool begun = false;

  MpiSlot& current() { return slot[next % slots]; }
};

class MpiLink final : public Link {
 public:
  MpiLink(std::shared_ptr<MpiProcess> process, std::int32_t rank) : process_(std::move(process)), rank_(rank) {
    for (auto* const of : {&out_, &in_})
      for (std::vector<Lane>& lanes : *of) lanes.resize(process_->places().size());
  }
  ~MpiLink() override {
    const auto open = [](std::array<std::vector<Lane>, channels>& of) {
      std::vector<MpiSlot> all;
      for (std::vector<Lane>& lanes : of)
        for (Lane& lane : lanes)
          for (MpiSlot& slot : lane.slot)
            if (slot.request != nullptr) all.push_back(std::move(slot));
      return all;
    };
    process_->keep(open(out_), open(in_));
  }
  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;

  TransportKind kind(std::int32_t /*from*/, std::int32_t /*to*/) const noexcept override { return TransportKind::mpi; }
  std::int32_t rank() const noexcept override { return rank_; }
  std::int32_t size() const noexcept override { return process_->size(); }
  const std::vector<std::int32_t>& places() const noexcept override { return process_->places(); }
  std::vector<std::int32_t> nodes() const override { return process_->nodes(); }

  std::span<std::byte> room(Channel channel, std::int32_t peer) override {
    MpiSlot& slot = lane(out_, channel, peer).current();
    if (!process_->is_free(slot)) return {};
    slot.bytes.resize(slot_bytes[channel]);
    return slot.bytes;
  }
  void send(Channel channel, std::int32_t peer, std::size_t bytes) override {
    Lane& of = lane(out_, channel, peer);
    process_->send(of.current(), bytes, channel, rank_, peer);
    ++of.next;
    patience_.moved(channel);
  }
  std::span<const std::byte> arrived(Channel channel, std::int32_t peer) override {
    Lane& of = lane(in_, channel, peer);
    if (!std::exchange(of.begun, true))
      for (MpiSlot& slot : of.slot) receive(slot, channel, peer);
    MpiSlot& slot = of.current();
    if (!process_->is_free(slot)) return {};
    return std::span<const std::byte>(slot.bytes).subspan(slot.taken, slot.count - slot.taken);
  }
  void take(Channel channel, std::int32_t peer, std::size_t bytes) override {
    patience_.moved(channel);
    Lane& of = lane(in_, channel, peer);
    MpiSlot& slot = of.current();
    slot.taken += bytes;
    if (slot.taken < slot.count) return;
    receive(slot, channel, peer);
    ++of.next;
  }
  bool settled(Channel channel) override {
    bool all = true;
    for (Lane& of : out_[channel])
      for (MpiSlot& slot : of.slot) all = process_->is_free(slot) && all;
    return all;
  }
  std::uint32_t bell(Channel /*channel*/) noexcept override { return 0; }
  /// MPI has no notification of arrivals, so this polls.
  void rest(Channel channel, std::uint32_t /*heard*/) noexcept override { patience_.rest(channel); }

  void in_phase(std::string_view what) noexcept override { process_->in_phase(rank_, what); }
  std::string describe(std::int32_t peer) const override { return process_->describe(peer); }
  bool has_left(std::int32_t peer) const noexcept override { return process_->has_left(peer); }
  std::vector<std::int32_t> silent() const override { return process_->silent(); }
  void give_up(const std::vector<std::int32_t>& /*peers*/) noexcept override {}
  std::string end(std::string_view cause) override { return process_->end(cause); }
  std::string ended() const override { return process_->ended(); }
  /// The first rank of the process looks for all of its ranks.
  std::string look() override { return rank_ == process_->first() ? process_->look() : process_->ended(); }
  Links regroup(bool /*everyone*/, std::chrono::milliseconds /*deadline*/) override {
    fail(ErrorCode::unsupported, "group: {} ends all ranks with the one that is lost: groups of RankGroup::join go on",
         MpiProcess::library());
  }

 private:
  /// Lanes of one direction, by channel and peer. Only the thread of a channel uses its slots.
  using Lanes = std::array<std::vector<Lane>, channels>;

  static Lane& lane(Lanes& of, Channel channel, std::int32_t peer) {
    return of[channel][static_cast<std::size_t>(peer)];
  }
  void receive(MpiSlot& slot, Channel channel, std::int32_t peer) {
    process_->receive(slot, slot_bytes[channel], channel, peer, rank_);
  }

  std::shared_ptr<MpiProcess> process_;
  std::int32_t rank_;
  Lanes out_, in_;
  Patience patience_;
};

class Mpi final : public Transport {
 public:
  TransportKind kind() const noexcept override { return TransportKind::mpi; }
  std::string reject(StreamView /*from*/, StreamView /*to*/) const override {
    return "needs ranks that are processes of MPI: RankGroup::from_mpi";
  }
  double probe(StreamView /*from*/, StreamView /*to*/) const override { return 0; }
  bool between_processes() const noexcept override { return true; }
};

}  // namespace

Links links_by_mpi(const std::shared_ptr<MpiProcess>& process) {
  Links links;
  for (std::int32_t i = 0; i < process->count(); ++i)
    links.push_back(std::make_unique<MpiLink>(process, process->first() + i));
  return links;
}

std::unique_ptr<const Transport> make_mpi() { return std::make_unique<Mpi>(); }

}  // namespace moecl
