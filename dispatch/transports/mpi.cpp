// Processes of MPI: messages of two tags, through slots of a fixed size. MPI itself is in a plugin.
#include "dispatch/transports/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "dispatch/processes/mpi_plugin.h"
#include "dispatch/processes/patience.hpp"
#include "dispatch/transports/transport.hpp"
#include "runtime/check.hpp"
#include "runtime/child_process.hpp"

namespace moecl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::size_t, Link::channels> slot_bytes = {16 << 10, 512 << 10};
constexpr std::size_t slots = 4;
/// A tag of its own says why the group ends, another that a rank runs, and what it is in.
constexpr int ending_tag = Link::channels, beat_tag = ending_tag + 1;
constexpr int ending_bytes = 1024, beat_bytes = 64;
constexpr std::chrono::milliseconds between_beats{50};

/// "openmpi", "mpich": the one that is in this process, else the one that its launcher belongs to.
std::string mpi_of_process() {
  if (void* const found = dlsym(RTLD_DEFAULT, "MPI_Get_library_version"); found != nullptr) {
    std::array<char, 8192> text{};
    int length = 0;
    reinterpret_cast<int (*)(char*, int*)>(found)(text.data(), &length);
    if (std::strstr(text.data(), "Open MPI") != nullptr) return "openmpi";
    if (std::strstr(text.data(), "MPICH") != nullptr) return "mpich";
    fail(ErrorCode::unsupported, "mpi: the process has neither Open MPI nor MPICH, but {}", text.data());
  }
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "openmpi";
  if (std::getenv("PMI_SIZE") != nullptr) return "mpich";
  fail(ErrorCode::unsupported, "mpi: this process was started by no mpirun of Open MPI or MPICH");
}

/// Never unloaded: MPI does not bear it.
const moecl_mpi& plugin() {
  static const moecl_mpi* const functions = [] {
    const std::string mpi = mpi_of_process(), helpers = helper_program(),
                      path = helpers.substr(0, helpers.rfind('/')) + "/mpi_" + mpi + ".so";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) fail(ErrorCode::unsupported, "mpi: no plugin for {}: {}", mpi, dlerror());
    void* const entry = dlsym(library, "moecl_mpi_plugin");
    const moecl_mpi* const found = entry != nullptr ? reinterpret_cast<const moecl_mpi* (*)()>(entry)() : nullptr;
    if (found == nullptr || found->version != MOECL_MPI_PLUGIN_VERSION)
      fail(ErrorCode::unsupported, "mpi: {} is of another version of moecl", path);
    return found;
  }();
  return *functions;
}

void check_mpi(int error, const char* what) {
  if (error == 0) return;
  std::array<char, 256> text{};
  plugin().describe(error, text.data(), static_cast<int>(text.size()));
  fail(ErrorCode::device_error, "mpi: {}: {}", what, text.data());
}

/// A message that is on its way, or free, or has come and is read.
struct Slot {
  std::vector<std::byte> bytes;
  void* request = nullptr;
  std::size_t count = 0, taken = 0;
};

/// One direction of a channel of a pair. Slots take turns.
struct Lane {
  std::array<Slot, slots> slot;
  std::size_t next = 0;
  bool begun = false;
};

class MpiLink final : public Link {
 public:
  MpiLink(const void* comm, std::chrono::milliseconds deadline, std::string& name_of_node)
      : most_silent_(deadline * 3 / 4), beaten_(Clock::now()), looked_(beaten_) {
    int thread_level = 0;
    check_mpi(plugin().open(comm, &comm_, &rank_, &size_, &thread_level), "the communicator");
    constexpr int serialized = 2;
    if (thread_level < serialized) {
      plugin().close(comm_, 1, 0);
      fail(ErrorCode::unsupported,
           "mpi: {} was initialised for {}: moecl calls it from two threads, one at a time, which is "
           "MPI_THREAD_SERIALIZED",
           plugin().name, thread_level == 1 ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
    }
    const auto peers = static_cast<std::size_t>(size_);
    for (std::int32_t rank = 0; rank < size_; ++rank) places_.push_back(rank);
    nodes_.resize(peers);
    std::random_device random;
    std::uint64_t word = std::uint64_t{random()} << 32 | random();
    check_mpi(plugin().nodes(comm_, nodes_.data(), &word), "the nodes");
    name_of_node = fmt::format("mpi-{:016x}", word);
    for (auto& of : lanes_)
      for (auto& direction : of) direction.resize(peers);
    endings_.resize(peers);
    beats_out_.resize(peers);
    beats_in_.resize(peers);
    goodbyes_.resize(peers);
    silent_.resize(peers);
    beats_sent_.resize(peers);
    beats_heard_.resize(peers);
    last_beat_.resize(peers);
  }
  ~MpiLink() override {
    const std::lock_guard lock(mutex_);
    // What was sent has to arrive; what nobody sends is no longer waited for.
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(cause_.empty() ? 2000 : 100);
    if (cause_.empty()) say_goodbye(end);
    for (auto& of : lanes_) {
      for (Lane& lane : of[out])
        for (Slot& slot : lane.slot)
          while (slot.request != nullptr && Clock::now() < end && !try_test(slot)) std::this_thread::yield();
      for (Lane& lane : of[in])
        for (Slot& slot : lane.slot) plugin().cancel(&slot.request);
    }
    for (auto* const kept : {&endings_, &beats_in_})
      for (Slot& slot : *kept) plugin().cancel(&slot.request);
    for (auto* const kept : {&beats_out_, &goodbyes_})
      for (Slot& slot : *kept)
        while (slot.request != nullptr && Clock::now() < end && !try_test(slot)) std::this_thread::yield();
    bool sent = true;
    for (auto& of : lanes_)
      for (Lane& lane : of[out])
        for (Slot& slot : lane.slot) sent = sent && slot.request == nullptr;
    for (auto* const kept : {&beats_out_, &goodbyes_})
      for (Slot& slot : *kept) sent = sent && slot.request == nullptr;
    plugin().close(comm_, sent && cause_.empty() ? 1 : 0, static_cast<int>((most_silent_ / 3).count()));
  }
  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;

  TransportKind kind(std::int32_t /*from*/, std::int32_t /*to*/) const noexcept override { return TransportKind::mpi; }
  std::int32_t rank() const noexcept override { return rank_; }
  std::int32_t size() const noexcept override { return size_; }
  const std::vector<std::int32_t>& places() const noexcept override { return places_; }
  std::vector<std::int32_t> nodes() const override { return nodes_; }

  std::span<std::byte> room(Channel channel, std::int32_t peer) override {
    const std::lock_guard lock(mutex_);
    Slot& slot = current(channel, out, peer);
    if (slot.request != nullptr && !test(slot)) return {};
    slot.bytes.resize(slot_bytes[channel]);
    return slot.bytes;
  }
  void send(Channel channel, std::int32_t peer, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    Slot& slot = current(channel, out, peer);
    check_mpi(plugin().send(comm_, slot.bytes.data(), static_cast<int>(bytes), peer, channel, &slot.request), "send");
    ++lane(channel, out, peer).next;
    patience_.moved(channel);
  }
  std::span<const std::byte> arrived(Channel channel, std::int32_t peer) override {
    const std::lock_guard lock(mutex_);
    Lane& of = lane(channel, in, peer);
    if (!std::exchange(of.begun, true))
      for (Slot& slot : of.slot) receive(slot, channel, peer);
    Slot& slot = current(channel, in, peer);
    if (slot.request != nullptr && !test(slot)) return {};
    return std::span<const std::byte>(slot.bytes).subspan(slot.taken, slot.count - slot.taken);
  }
  void take(Channel channel, std::int32_t peer, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    patience_.moved(channel);
    Slot& slot = current(channel, in, peer);
    slot.taken += bytes;
    if (slot.taken < slot.count) return;
    receive(slot, channel, peer);
    ++lane(channel, in, peer).next;
  }
  bool settled(Channel channel) override {
    const std::lock_guard lock(mutex_);
    bool all = true;
    for (Lane& of : lanes_[channel][out])
      for (Slot& slot : of.slot) all = (slot.request == nullptr || test(slot)) && all;
    return all;
  }
  std::uint32_t bell(Channel /*channel*/) noexcept override { return 0; }
  /// MPI tells nobody that something has come.
  void rest(Channel channel, std::uint32_t /*heard*/) noexcept override { patience_.rest(channel); }

  void in_phase(std::string_view what) noexcept override {
    const std::lock_guard lock(mutex_);
    phase_ = {};
    std::memcpy(phase_.data(), what.data(), std::min(what.size(), phase_.size() - 1));
  }
  std::string describe(std::int32_t peer) const override {
    const std::lock_guard lock(mutex_);
    return described(peer);
  }
  bool has_left(std::int32_t peer) const noexcept override {
    const std::lock_guard lock(mutex_);
    return last_beat_[static_cast<std::size_t>(peer)].has_value();
  }
  void give_up(const std::vector<std::int32_t>& /*peers*/) noexcept override {}

  std::string end(std::string_view cause) override {
    const std::lock_guard lock(mutex_);
    if (!cause_.empty()) return cause_;
    cause_ = cause;
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      // It lives as long as the process: nobody waits until it has gone.
      auto* const text = new std::array<char, ending_bytes>{};
      std::memcpy(text->data(), cause.data(), std::min(cause.size(), text->size() - 1));
      void* request = nullptr;
      if (plugin().send(comm_, text->data(), ending_bytes, peer, ending_tag, &request) != 0) delete text;
    }
    return cause_;
  }
  std::string ended() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  std::string look() override {
    const std::lock_guard lock(mutex_);
    if (!cause_.empty()) return cause_;
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      if (hear_ending(peer)) return cause_;
    }
    return beat();
  }
  Links regroup(bool /*everyone*/, std::chrono::milliseconds /*deadline*/) override {
    fail(ErrorCode::unsupported, "group: {} ends all ranks with the one that is lost: groups of RankGroup::join go on",
         plugin().name);
  }

 private:
  enum Direction : std::uint8_t { out, in };

  std::string described(std::int32_t peer) const {
    const Slot& heard = beats_in_[static_cast<std::size_t>(peer)];
    const char* const text = reinterpret_cast<const char*>(heard.bytes.data());
    return fmt::format("rank {} of MPI {}", peer,
                       heard.count == 0 ? "before the first exchange" : std::string(text, strnlen(text, heard.count)));
  }
  /// Whether the peer has ended the group; it may also have left it.
  bool hear_ending(std::int32_t peer) {
    Slot& slot = endings_[static_cast<std::size_t>(peer)];
    if (slot.bytes.empty()) {
      slot.bytes.resize(ending_bytes);
      check_mpi(plugin().receive(comm_, slot.bytes.data(), ending_bytes, peer, ending_tag, &slot.request), "receive");
    }
    if (slot.request == nullptr || !test(slot)) return false;
    if (slot.count == sizeof(std::uint64_t)) {
      std::uint64_t beats = 0;
      std::memcpy(&beats, slot.bytes.data(), sizeof(beats));
      last_beat_[static_cast<std::size_t>(peer)] = beats;
      return false;
    }
    const char* const text = reinterpret_cast<const char*>(slot.bytes.data());
    cause_ = std::string(text, strnlen(text, slot.count));
    return true;
  }
  bool hear_beat(std::int32_t peer) {
    Slot& from = beats_in_[static_cast<std::size_t>(peer)];
    const bool heard = from.request != nullptr && test(from);
    if (from.request != nullptr) return false;
    if (heard) {
      std::copy_n(from.bytes.begin() + beat_bytes, beat_bytes, from.bytes.begin());
      ++beats_heard_[static_cast<std::size_t>(peer)];
    }
    from.bytes.resize(2 * beat_bytes);  // what was heard last, and what comes
    check_mpi(plugin().receive(comm_, from.bytes.data() + beat_bytes, beat_bytes, peer, beat_tag, &from.request),
              "receive");
    return heard;
  }
  /// Takes what peers have sent until they leave, since MPICH complains of messages that nobody takes.
  void say_goodbye(Clock::time_point end) noexcept try {
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Slot& slot = goodbyes_[static_cast<std::size_t>(peer)];
      slot.bytes.resize(sizeof(std::uint64_t));
      std::memcpy(slot.bytes.data(), &beats_sent_[static_cast<std::size_t>(peer)], slot.bytes.size());
      check_mpi(
          plugin().send(comm_, slot.bytes.data(), static_cast<int>(slot.bytes.size()), peer, ending_tag, &slot.request),
          "send");
    }
    for (bool all = false; !all && Clock::now() < end; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
      all = true;
      for (std::int32_t peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const auto p = static_cast<std::size_t>(peer);
        if (hear_ending(peer)) return;
        hear_beat(peer);
        all = all && last_beat_[p] && beats_heard_[p] >= *last_beat_[p];
      }
    }
  } catch (const std::exception&) {  // MPI says the rest
  }
  /// Tells the peers what this rank is in, and hears them. @return  Who is silent; empty: nobody
  std::string beat() {
    // A machine that stood still has not heard anybody meanwhile.
    constexpr std::chrono::microseconds longest_pause{50000};
    const auto now = Clock::now();
    const auto ran = std::min(std::chrono::duration_cast<std::chrono::microseconds>(now - looked_), longest_pause);
    looked_ = now;
    const bool due = now - beaten_ >= between_beats;
    if (due) beaten_ = now;
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Slot& to = beats_out_[static_cast<std::size_t>(peer)];
      if (due && (to.request == nullptr || test(to))) {
        const auto* const text = reinterpret_cast<const std::byte*>(phase_.data());
        to.bytes.assign(text, text + beat_bytes);
        check_mpi(plugin().send(comm_, to.bytes.data(), beat_bytes, peer, beat_tag, &to.request), "send");
        ++beats_sent_[static_cast<std::size_t>(peer)];
      }
      auto& silent = silent_[static_cast<std::size_t>(peer)];
      silent =
          hear_beat(peer) || last_beat_[static_cast<std::size_t>(peer)] ? std::chrono::microseconds(0) : silent + ran;
      if (silent >= most_silent_)
        return fmt::format("{} has not run for {} ms", described(peer),
                           std::chrono::duration_cast<std::chrono::milliseconds>(silent).count());
    }
    return {};
  }

  Lane& lane(Channel channel, Direction direction, std::int32_t peer) {
    return lanes_[channel][direction][static_cast<std::size_t>(peer)];
  }
  Slot& current(Channel channel, Direction direction, std::int32_t peer) {
    Lane& of = lane(channel, direction, peer);
    return of.slot[of.next % slots];
  }
  void receive(Slot& slot, Channel channel, std::int32_t peer) {
    slot.bytes.resize(slot_bytes[channel]);
    slot.count = slot.taken = 0;
    check_mpi(
        plugin().receive(comm_, slot.bytes.data(), static_cast<int>(slot.bytes.size()), peer, channel, &slot.request),
        "receive");
  }
  bool test(Slot& slot) {
    int done = 0, count = 0;
    check_mpi(plugin().test(&slot.request, &done, &count), "test");
    if (done != 0) slot.count = std::min(static_cast<std::size_t>(std::max(count, 0)), slot.bytes.size());
    return done != 0;
  }
  bool try_test(Slot& slot) noexcept {
    int done = 0, count = 0;
    return plugin().test(&slot.request, &done, &count) != 0 || done != 0;
  }

  void* comm_ = nullptr;
  int rank_ = 0, size_ = 0;
  std::vector<std::int32_t> places_, nodes_;
  std::chrono::milliseconds most_silent_;
  mutable std::mutex mutex_;  ///< MPI is called by one thread at a time; of all below
  std::array<std::array<std::vector<Lane>, 2>, Link::channels> lanes_;
  std::vector<Slot> endings_, beats_out_, beats_in_, goodbyes_;
  std::vector<std::uint64_t> beats_sent_, beats_heard_;
  std::vector<std::optional<std::uint64_t>> last_beat_;  ///< of who has left: how many it had sent
  std::vector<std::chrono::microseconds> silent_;
  Clock::time_point beaten_, looked_;
  std::array<char, beat_bytes> phase_{};
  std::string cause_;
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

std::unique_ptr<Link> link_by_mpi(const void* mpi_comm, std::chrono::milliseconds deadline, std::string& name_of_node) {
  return std::make_unique<MpiLink>(mpi_comm, deadline, name_of_node);
}

std::unique_ptr<const Transport> make_mpi() { return std::make_unique<Mpi>(); }

}  // namespace moecl
