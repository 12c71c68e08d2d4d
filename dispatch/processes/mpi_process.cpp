#include "dispatch/processes/mpi_process.hpp"

#include <moecl/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <iterator>
#include <random>
#include <thread>

#include "dispatch/processes/mpi_plugin.h"
#include "runtime/check.hpp"
#include "runtime/child_process.hpp"

namespace moecl {
namespace {

/// Tags: one for the cause of the group's end, one for heartbeats with the phases of a process' ranks, others for pairs
/// of ranks.
constexpr int ending_tag = 0, beat_tag = 1, first_pair_tag = 2;
constexpr std::size_t ending_bytes = 1024, phase_bytes = 64;
constexpr std::chrono::milliseconds between_beats{50};

/// "openmpi" or "mpich": the MPI that is loaded in this process, otherwise the MPI of its launcher.
std::string mpi_of_process() {
  // Python loads its extensions, and MPI with them, without global symbols; so the libraries are also tried by name.
  for (const char* const library : {static_cast<const char*>(nullptr), "libmpi.so.40", "libmpich.so.12"}) {
    void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void* const found = loaded != nullptr ? dlsym(loaded, "MPI_Get_library_version") : nullptr;
    if (found == nullptr) continue;
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

/// The plugin is never unloaded, since MPI does not survive that.
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

bool try_test(MpiSlot& slot) noexcept {
  int done = 0, count = 0;
  return plugin().test(&slot.request, &done, &count) != 0 || done != 0;
}

}  // namespace

MpiComm::MpiComm(const void* of, std::chrono::milliseconds deadline) : deadline(deadline) {
  int thread_level = 0;
  check_mpi(plugin().open(of, &handle, &process, &processes, &thread_level), "the communicator");
  constexpr int serialized = 2;
  if (thread_level < serialized)
    fail(ErrorCode::unsupported,
         "mpi: {} was initialised for {}: moecl calls it from several threads, one at a time, which is "
         "MPI_THREAD_SERIALIZED",
         plugin().name, thread_level == 1 ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
}

MpiComm::~MpiComm() { plugin().close(handle, whole ? 1 : 0, static_cast<int>(deadline.count())); }

namespace {

/// What all processes exchange before messages are possible.
struct Begun {
  std::unique_ptr<MpiComm> comm;
  std::vector<std::int32_t> counts, nodes;
  std::uint64_t word;  ///< of this node
};

Begun begin(const void* mpi_comm, std::int32_t ranks, std::chrono::milliseconds deadline) {
  std::random_device random;
  Begun begun{std::make_unique<MpiComm>(mpi_comm, deadline), {}, {}, std::uint64_t{random()} << 32 | random()};
  begun.counts.resize(static_cast<std::size_t>(begun.comm->processes));
  begun.nodes.resize(begun.counts.size());
  check_mpi(plugin().gather(begun.comm->handle, ranks, begun.counts.data()), "how many ranks processes have");
  check_mpi(plugin().nodes(begun.comm->handle, begun.nodes.data(), &begun.word), "the nodes");
  return begun;
}

/// MPI would wait forever for a process that is lost meanwhile. So a separate thread calls it, and is left behind after
/// the deadline.
Begun begin_in_time(const void* mpi_comm, std::int32_t ranks, std::chrono::milliseconds deadline) {
  std::packaged_task<Begun()> task([=] { return begin(mpi_comm, ranks, deadline); });
  std::future<Begun> outcome = task.get_future();
  std::thread thread(std::move(task));
  // Time during which this process was itself stopped does not count as waiting.
  constexpr std::chrono::milliseconds look{10};
  std::chrono::milliseconds waited{0};
  while (waited < deadline && outcome.wait_for(look) != std::future_status::ready) waited += look;
  if (waited >= deadline) {
    thread.detach();
    plugin().close(nullptr, 0, static_cast<int>(deadline.count()));
    fail(ErrorCode::deadline_exceeded, "mpi: {} has not begun within {} ms: a process did not come", plugin().name,
         deadline.count());
  }
  thread.join();
  Begun begun = outcome.get();
  begun.comm->whole = true;
  return begun;
}

}  // namespace

const char* MpiProcess::library() { return plugin().name; }

MpiProcess::MpiProcess(const void* mpi_comm, std::int32_t ranks, std::chrono::milliseconds deadline)
    : most_silent_(deadline * 3 / 4) {
  Begun begun = begin_in_time(mpi_comm, ranks, deadline);
  comm_ = std::move(begun.comm);
  for (const std::int32_t count : begun.counts) {
    const std::size_t process = ranks_.size();
    require(count >= 1 && count <= most_ranks, "mpi: process {} has {} ranks, not 1 to {}", process, count, most_ranks);
    ranks_.push_back({size(), count});
    for (std::int32_t i = 0; i < count; ++i) {
      places_.push_back(size());
      process_of_.push_back(process);
    }
  }
  name_of_node_ = fmt::format("mpi-{:016x}", begun.word);
  for (const std::size_t process : process_of_)
    nodes_.push_back(ranks_[static_cast<std::size_t>(begun.nodes[process])].first);
  peers_.resize(ranks_.size());
  phases_.resize(phase_bytes * static_cast<std::size_t>(ranks));
  beaten_ = looked_ = Clock::now();
}

MpiProcess::~MpiProcess() {
  const std::lock_guard lock(mutex_);
  // Sent messages have to arrive. Receives that no peer will serve are cancelled.
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(cause_.empty() ? 2000 : 100);
  if (cause_.empty()) say_goodbye(end);
  bool sent = true;
  const auto finish = [&](MpiSlot& slot) {
    while (slot.request != nullptr && Clock::now() < end && !try_test(slot)) std::this_thread::yield();
    sent = sent && slot.request == nullptr;
  };
  for (MpiSlot& slot : sent_) finish(slot);
  for (MpiSlot& slot : received_) plugin().cancel(&slot.request);
  for (Peer& peer : peers_) {
    for (MpiSlot* const slot : {&peer.ending, &peer.beat_in}) plugin().cancel(&slot->request);
    for (MpiSlot* const slot : {&peer.beat_out, &peer.goodbye}) finish(*slot);
  }
  comm_->whole = sent && cause_.empty();
}

template <class Act>
void MpiProcess::for_peers(Act act) {
  for (std::size_t process = 0; process < peers_.size(); ++process)
    if (process != mine()) act(peers_[process], process);
}

int MpiProcess::tag(Link::Channel channel, std::int32_t from, std::int32_t to) const noexcept {
  const auto of = [this](std::int32_t rank) { return rank - ranks_[process_of(rank)].first; };
  return first_pair_tag + (channel * most_ranks + of(from)) * most_ranks + of(to);
}

void MpiProcess::begin_send(MpiSlot& slot, std::size_t bytes, std::size_t to, int tag) {
  check_mpi(plugin().send(comm_->handle, slot.bytes.data(), static_cast<int>(bytes), static_cast<int>(to), tag,
                          &slot.request),
            "send");
}

void MpiProcess::begin_receive(MpiSlot& slot, std::size_t bytes, std::size_t from, int tag) {
  slot.bytes.resize(bytes);
  slot.count = slot.taken = 0;
  check_mpi(plugin().receive(comm_->handle, slot.bytes.data(), static_cast<int>(bytes), static_cast<int>(from), tag,
                             &slot.request),
            "receive");
}

bool MpiProcess::test(MpiSlot& slot) {
  if (slot.request == nullptr) return true;
  int done = 0, count = 0;
  check_mpi(plugin().test(&slot.request, &done, &count), "test");
  if (done != 0) slot.count = std::min(static_cast<std::size_t>(std::max(count, 0)), slot.bytes.size());
  return done != 0;
}

void MpiProcess::send(MpiSlot& slot, std::size_t bytes, Link::Channel channel, std::int32_t from, std::int32_t to) {
  const std::lock_guard lock(mutex_);
  begin_send(slot, bytes, process_of(to), tag(channel, from, to));
}

void MpiProcess::receive(MpiSlot& slot, std::size_t bytes, Link::Channel channel, std::int32_t from, std::int32_t to) {
  const std::lock_guard lock(mutex_);
  begin_receive(slot, bytes, process_of(from), tag(channel, from, to));
}

bool MpiProcess::is_free(MpiSlot& slot) {
  if (slot.request == nullptr) return true;
  const std::lock_guard lock(mutex_);
  return test(slot);
}

void MpiProcess::keep(std::vector<MpiSlot> sent, std::vector<MpiSlot> received) {
  const std::lock_guard lock(mutex_);
  std::move(sent.begin(), sent.end(), std::back_inserter(sent_));
  std::move(received.begin(), received.end(), std::back_inserter(received_));
}

void MpiProcess::in_phase(std::int32_t rank, std::string_view what) noexcept {
  const std::lock_guard lock(mutex_);
  std::byte* const phase = phases_.data() + phase_bytes * static_cast<std::size_t>(rank - first());
  std::fill_n(phase, phase_bytes, std::byte{0});
  std::memcpy(phase, what.data(), std::min(what.size(), phase_bytes - 1));
}

std::string MpiProcess::describe(std::int32_t rank) const {
  const std::lock_guard lock(mutex_);
  return described(rank);
}

std::string MpiProcess::described(std::int32_t rank) const {
  const std::vector<std::byte>& heard = peers_[process_of(rank)].heard;
  const std::size_t at = phase_bytes * static_cast<std::size_t>(rank - ranks_[process_of(rank)].first);
  const char* const text = reinterpret_cast<const char*>(heard.data()) + at;
  return fmt::format(
      "rank {} of MPI {}", rank,
      heard.size() < at + phase_bytes ? "before the first exchange" : std::string(text, strnlen(text, phase_bytes)));
}

bool MpiProcess::has_left(std::int32_t rank) const noexcept {
  const std::lock_guard lock(mutex_);
  return peers_[process_of(rank)].last_beat.has_value();
}

std::vector<std::int32_t> MpiProcess::silent() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::chrono::microseconds> times;
  for (const std::size_t process : process_of_) times.push_back(peers_[process].silent);
  return far_more_silent(times, most_silent_);
}

std::string MpiProcess::end(std::string_view cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_.empty()) return cause_;
  cause_ = cause;
  for_peers([&](Peer& /*peer*/, std::size_t process) {
    // The text is never freed: nothing waits until the message has left.
    auto* const text = new std::array<char, ending_bytes>{};
    std::memcpy(text->data(), cause.data(), std::min(cause.size(), text->size() - 1));
    void* request = nullptr;
    if (plugin().send(comm_->handle, text->data(), ending_bytes, static_cast<int>(process), ending_tag, &request) != 0)
      delete text;
  });
  return cause_;
}

std::string MpiProcess::ended() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

std::string MpiProcess::look() {
  const std::lock_guard lock(mutex_);
  for (std::size_t process = 0; process < peers_.size() && cause_.empty(); ++process)
    if (process != mine()) hear_ending(process);
  return cause_.empty() ? beat() : cause_;
}

/// Whether the peer has ended the group. Also notices that the peer has left it.
bool MpiProcess::hear_ending(std::size_t process) {
  Peer& peer = peers_[process];
  MpiSlot& slot = peer.ending;
  if (slot.bytes.empty()) begin_receive(slot, ending_bytes, process, ending_tag);
  if (slot.request == nullptr || !test(slot)) return false;
  if (slot.count == sizeof(std::uint64_t)) {
    std::uint64_t beats = 0;
    std::memcpy(&beats, slot.bytes.data(), sizeof(beats));
    peer.last_beat = beats;
    return false;
  }
  const char* const text = reinterpret_cast<const char*>(slot.bytes.data());
  cause_ = std::string(text, strnlen(text, slot.count));
  return true;
}

bool MpiProcess::hear_beat(std::size_t process) {
  Peer& peer = peers_[process];
  MpiSlot& slot = peer.beat_in;
  if (slot.request != nullptr && !test(slot)) return false;
  const bool heard = !slot.bytes.empty();
  if (heard) {
    peer.heard = slot.bytes;
    ++peer.beats_heard;
  }
  begin_receive(slot, phase_bytes * static_cast<std::size_t>(ranks_[process].count), process, beat_tag);
  return heard;
}

/// Receives everything that peers send until they leave, since MPICH complains of messages that nobody receives.
void MpiProcess::say_goodbye(Clock::time_point end) noexcept try {
  for_peers([&](Peer& peer, std::size_t process) {
    peer.goodbye.bytes.resize(sizeof(peer.beats_sent));
    std::memcpy(peer.goodbye.bytes.data(), &peer.beats_sent, sizeof(peer.beats_sent));
    begin_send(peer.goodbye, sizeof(peer.beats_sent), process, ending_tag);
  });
  for (bool all = false; !all && Clock::now() < end; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    all = true;
    for_peers([&](Peer& peer, std::size_t process) {
      if (!cause_.empty() || hear_ending(process)) return;
      hear_beat(process);
      all = all && peer.last_beat && peer.beats_heard >= *peer.last_beat;
    });
    if (!cause_.empty()) return;
  }
} catch (const std::exception&) {  // MPI reports the rest
}

/// Sends a heartbeat with the phases of this process' ranks, and receives those of the peers. @return  Who is silent;
/// empty: nobody
std::string MpiProcess::beat() {
  // Limits the silence that one call can add: a machine that stood still has not heard anybody meanwhile.
  constexpr std::chrono::microseconds longest_pause{50000};
  const auto now = Clock::now();
  const auto ran = std::min(std::chrono::duration_cast<std::chrono::microseconds>(now - looked_), longest_pause);
  looked_ = now;
  const bool due = now - beaten_ >= between_beats;
  if (due) beaten_ = now;
  std::string lost;
  for_peers([&](Peer& peer, std::size_t process) {
    if (due && test(peer.beat_out)) {
      peer.beat_out.bytes = phases_;
      begin_send(peer.beat_out, phases_.size(), process, beat_tag);
      ++peer.beats_sent;
    }
    peer.silent = hear_beat(process) || peer.last_beat ? std::chrono::microseconds(0) : peer.silent + ran;
    if (lost.empty() && peer.silent >= most_silent_)
      lost = fmt::format("{} has not run for {} ms", described(ranks_[process].first),
                         std::chrono::duration_cast<std::chrono::milliseconds>(peer.silent).count());
  });
  return lost;
}

}  // namespace moecl
