#include "dispatch/processes/courier.hpp"

#include <moecl/error.hpp>
#include <moecl/trace.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include "dispatch/processes/rows_access.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

using Clock = std::chrono::steady_clock;

/// A range that a peer requests, in words of 64 bits.
struct Request {
  std::uint64_t piece, offset, bytes;
};
constexpr std::uint64_t most_requests = 1 << 16;

/// A list of ranges, consumed as one stream of bytes.
class Ranges {
 public:
  void add(BufferView view) {
    if (view.size_bytes != 0) views_.push_back(view);
  }
  bool empty() const { return next_ == views_.size(); }
  /// Returns the next part, of at most `most` bytes, and moves on.
  BufferView next(std::uint64_t most) {
    const BufferView& view = views_[next_];
    const BufferView part = view.slice(done_, std::min(most, view.size_bytes - done_));
    done_ += part.size_bytes;
    if (done_ == view.size_bytes) ++next_, done_ = 0;
    return part;
  }

 private:
  std::vector<BufferView> views_;
  std::size_t next_ = 0;
  std::uint64_t done_ = 0;
};

/// Header of a list of requests, in words of 64 bits.
struct Head {
  std::uint64_t requests;
  std::uint64_t reads;  ///< 1: asks for host addresses of the rows, reads them there, and then sends another list
};
/// Bounds for direct reads of a peer's memory. A direct read copies once, but the kernel looks up each page. The link
/// copies twice, in parts that stay in a cache.
constexpr std::uint64_t least_read_bytes = 1 << 20, least_read_range = 64 << 10;

/// The protocol between this rank and one peer in one job, for both directions: first the requests, then the rows. A
/// rank that wants many bytes requests their host addresses and reads them out of the peer's memory. Afterwards it
/// sends an empty list of requests, or the full list if it could not read.
class Conversation {
 public:
  Conversation(const RowsJob& job, std::int32_t peer, Link& link, const RowsAccess& shown, const RowsAccess& wanted)
      : job_(job), peer_(peer), link_(link), shown_(shown), to_(wanted) {
    std::uint64_t ranges = 0, bytes = 0;
    for (const RowsJob::Fetch& fetch : job.fetches)
      if (fetch.peer == peer) {
        wanted_.add(fetch.to);
        ++ranges, bytes += fetch.to.size_bytes;
      }
    if (bytes >= std::max(least_read_bytes, ranges * least_read_range) && to_.in_place() && link.may_read(peer))
      reads_ = Reads::asks;
    ask();
  }

  std::int32_t peer() const { return peer_; }
  bool gave() const { return said_ == saying_.size() && understood() && given_.empty(); }
  bool got() const { return understood() && wanted_.empty(); }

  /// Writes the next bytes of this rank's requests and answers to `room`. @return  How many were written
  std::size_t speak(std::span<std::byte> room) {
    if (reads_ == Reads::has_tried && (was_read_ || given_.empty())) {
      reads_ = Reads::asked_again;
      ask();
    }
    const std::size_t bytes = std::min(room.size(), saying_.size() - said_);
    if (bytes != 0) std::memcpy(room.data(), saying_.data() + said_, bytes);
    said_ += bytes;
    return bytes;
  }
  /// Consumes requests and answers of the peer. @return  How many bytes these were; the rest are rows. Errors:
  /// invalid_data  requests for ranges that are not shown
  std::size_t listen(std::span<const std::byte> came) {
    std::size_t used = 0;
    for (std::size_t expected = 0; used < came.size() && (expected = said_next()) != 0;) {
      const std::size_t bytes = std::min(came.size() - used, expected - heard_.size());
      heard_.insert(heard_.end(), came.data() + used, came.data() + used + bytes);
      used += bytes;
      if (heard_.size() < said_next()) continue;
      if (reads_ == Reads::asks && heard_any_) {
        places_ = std::move(heard_);
        reads_ = Reads::knows;
      } else {
        understand();
      }
      heard_.clear();
    }
    return used;
  }
  /// Reads the rows out of the peer's memory. Does nothing until all answers to the peer are sent, so that both read at
  /// once. @return  Whether a read was tried
  bool read() {
    if (reads_ != Reads::knows || said_ != saying_.size()) return false;
    bool all = true;
    std::size_t at = 0;
    for (const RowsJob::Fetch& fetch : job_.fetches)
      if (fetch.peer == peer_) {
        const auto address = word<std::uint64_t>(places_, std::exchange(at, at + sizeof(std::uint64_t)));
        all = all && link_.read(peer_, address, {to_.address(fetch.to), fetch.to.size_bytes});
      }
    if (all) wanted_ = {};
    reads_ = Reads::has_tried;
    return true;
  }
  Ranges& given() { return given_; }
  Ranges& wanted() { return wanted_; }
  bool may_give() const { return said_ == saying_.size() && (has_asked() || !was_read_); }
  bool may_get() const { return said_next() == 0; }

 private:
  enum class Reads : std::uint8_t { nothing, asks, knows, has_tried, asked_again };

  /// Whether this rank has sent its last list of requests.
  bool has_asked() const { return reads_ == Reads::nothing || reads_ == Reads::asked_again; }
  /// Whether both sides have exchanged their last requests.
  bool understood() const { return heard_any_ && !is_read_ && has_asked(); }

  template <class T>
  void say(const T& words) {
    const auto* const first = reinterpret_cast<const std::byte*>(&words);
    saying_.insert(saying_.end(), first, first + sizeof(words));
  }
  void ask() {
    std::vector<Request> requests;
    if (!wanted_.empty())
      for (const RowsJob::Fetch& fetch : job_.fetches)
        if (fetch.peer == peer_) requests.push_back({fetch.piece, fetch.offset, fetch.to.size_bytes});
    asked_ = requests.size();
    say(Head{asked_, reads_ == Reads::asks ? 1U : 0U});
    for (const Request& request : requests) say(request);
  }

  /// Length of the next message that is not rows, as far as it is known; 0: rows come next. Errors: invalid_data  far
  /// too many requests
  std::size_t said_next() const {
    if (heard_any_ && reads_ == Reads::asks) return asked_ * sizeof(std::uint64_t);
    if (heard_any_ && (!is_read_ || (reads_ == Reads::nothing && !wanted_.empty()))) return 0;
    if (heard_.size() < sizeof(Head)) return sizeof(Head);
    const std::uint64_t requests = word<Head>(heard_, 0).requests;
    if (requests > most_requests)
      fail(ErrorCode::invalid_data, "rank {} asks for {} ranges, at most {}", peer_, requests, most_requests);
    return sizeof(Head) + requests * sizeof(Request);
  }
  template <class T>
  static T word(const std::vector<std::byte>& of, std::size_t at) {
    T words{};
    std::memcpy(&words, of.data() + at, sizeof(words));
    return words;
  }

  /// Handles a complete list of the peer's requests.
  void understand() {
    const Head head = word<Head>(heard_, 0);
    if (heard_any_ && head.reads != 0) fail(ErrorCode::invalid_data, "rank {} reads rows twice", peer_);
    for (std::uint64_t i = 0; i < head.requests; ++i) {
      const auto request = word<Request>(heard_, sizeof(Head) + i * sizeof(Request));
      if (request.piece >= job_.shown.size() || request.offset > job_.shown[request.piece].size_bytes ||
          request.bytes > job_.shown[request.piece].size_bytes - request.offset)
        fail(ErrorCode::invalid_data, "rank {} asks for {} bytes at {} of piece {}, of {} that are shown", peer_,
             request.bytes, request.offset, request.piece, job_.shown.size());
      const BufferView range = job_.shown[request.piece].slice(request.offset, request.bytes);
      if (head.reads != 0)
        say(shown_.in_place() ? reinterpret_cast<std::uint64_t>(shown_.address(range)) : std::uint64_t{0});
      else
        given_.add(range);
    }
    if (!std::exchange(heard_any_, true)) was_read_ = head.reads != 0;
    is_read_ = head.reads != 0;
  }

  const RowsJob& job_;
  std::int32_t peer_;
  Link& link_;
  const RowsAccess &shown_, &to_;
  Reads reads_ = Reads::nothing;
  bool heard_any_ = false;                   ///< a list of requests has come
  bool was_read_ = false, is_read_ = false;  ///< the peer reads directly, by its first list and by its last
  std::vector<std::byte> saying_, heard_, places_;
  std::size_t said_ = 0, asked_ = 0;
  Ranges given_, wanted_;
};

/// The text of the block in the trace.
std::string words_of(const RowsJob& job, const Link& link, std::uint64_t bytes) {
  std::string ways;
  for (const std::int32_t peer : job.peers)
    if (const std::string_view way = name(link.kind(peer, link.rank())); ways.find(way) == std::string::npos)
      ways += fmt::format("{}{}", ways.empty() ? " by " : " and ", way);
  return fmt::format("{}{}: {} bytes to rank {}", job.what, ways, bytes, link.rank());
}

}  // namespace

/// Bytes of one poll of a peer that are in transit between a device and the link.
struct Courier::Moving {
  std::int32_t peer;
  std::size_t out = 0, in = 0;
  std::vector<Event> events;
};

Courier::Courier(StreamView stream, Link& link, GroupFate& fate)
    : link_(link),
      fate_(fate),
      reads_(Stream::beside(stream, false)),
      writes_(Stream::beside(stream, false)),
      thread_([this] { work(); }) {}

Courier::~Courier() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Courier::enqueue(RowsJob job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Courier::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    RowsJob job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      if (fate_.cause().empty()) carry(job);
    } catch (const std::exception& error) {
      try {
        fate_.end(fmt::format("{}: rank {}: {}", job.what, link_.rank(), error.what()));
      } catch (const std::bad_alloc&) {  // then the text alone
        fate_.end(error.what());
      }
    }
    if (!job.done->complete()) fate_.end(refused_event);
  }
}

void Courier::move(Moving& done) {
  if (done.out != 0) link_.send(Link::rows, done.peer, std::exchange(done.out, 0));
  if (done.in != 0) link_.take(Link::rows, done.peer, std::exchange(done.in, 0));
}

void Courier::carry(RowsJob& job) {
  if (job.counted) job.fetches = job.counted.read(reads_, *job.ready, fate_);
  std::uint64_t bytes_in = 0;
  for (const RowsJob::Fetch& fetch : job.fetches) bytes_in += fetch.to.size_bytes;
  const Trace::Span span(job.trace, job.trace == nullptr ? std::string() : words_of(job, link_, bytes_in));
  const RowsAccess shown(reads_, job.ready), wanted(writes_, job.free);
  std::vector<Conversation> peers;
  for (const std::int32_t peer : job.peers) peers.emplace_back(job, peer, link_, shown, wanted);
  for (Conversation& with : peers)
    if (const std::span<std::byte> room = link_.room(Link::rows, with.peer()); !room.empty())
      link_.send(Link::rows, with.peer(), with.speak(room));  // peers read it while this device finishes its rows
  shown.wait(fate_);
  wanted.wait(fate_);
  Clock::time_point end = Clock::now() + fate_.deadline;
  for (;;) {
    fate_.expect_whole();
    const std::uint32_t heard = link_.bell(Link::rows);
    bool moved = false;
    std::vector<Moving> moving;
    for (Conversation& with : peers) {
      Moving& now = moving.emplace_back(Moving{with.peer(), 0, 0, {}});
      if (!with.gave())
        if (const std::span<std::byte> room = link_.room(Link::rows, with.peer()); !room.empty()) {
          now.out = with.speak(room);
          const std::size_t most = now.out + shown.part_of(room.size() - now.out);
          while (with.may_give() && !with.given().empty() && now.out < most) {
            const BufferView part = with.given().next(most - now.out);
            shown.read(part, room.data() + now.out, now.events);
            now.out += part.size_bytes;
          }
        }
      if (!with.got())
        if (const std::span<const std::byte> came = link_.arrived(Link::rows, with.peer()); !came.empty()) {
          now.in = with.listen(came);
          const std::size_t most = now.in + wanted.part_of(came.size() - now.in);
          while (with.may_get() && !with.wanted().empty() && now.in < most) {
            const BufferView part = with.wanted().next(most - now.in);
            wanted.write(part, came.data() + now.in, now.events);
            now.in += part.size_bytes;
          }
        }
      moved = moved || now.out != 0 || now.in != 0;
      if (now.events.empty()) move(now);
    }
    for (Conversation& with : peers) moved = with.read() || moved;
    if (std::any_of(moving.begin(), moving.end(), [](const Moving& of) { return !of.events.empty(); })) {
      shown.flush();
      wanted.flush();
    }
    if (moved) {
      for (Moving& now : moving) {
        for (const Event& event : now.events) fate_.wait(event);
        move(now);
      }
      end = Clock::now() + fate_.deadline;
    }
    const bool gave = std::all_of(peers.begin(), peers.end(), [](const Conversation& with) { return with.gave(); });
    if (gave && std::all_of(peers.begin(), peers.end(), [](const Conversation& with) { return with.got(); }) &&
        link_.settled(Link::rows))
      return;
    if (moved) continue;
    const bool late = Clock::now() >= end;
    std::vector<std::int32_t> missed = late ? link_.silent() : std::vector<std::int32_t>();
    const bool late_but_run = late && missed.empty();
    // Everything that a peer sent before it left has arrived by the time its leaving is seen.
    const auto is_gone = [this](std::int32_t peer) {
      return link_.has_left(peer) && link_.arrived(Link::rows, peer).empty();
    };
    for (const Conversation& with : peers)
      if ((!with.got() || !with.gave()) && (late_but_run || is_gone(with.peer()))) missed.push_back(with.peer());
    if (!missed.empty()) {
      const std::string absent = accused(link_, missed);
      fate_.end(late ? fmt::format("{}: rank {} waited {} ms for rows of {}", job.what, link_.rank(),
                                   fate_.deadline.count(), absent)
                     : fmt::format("{}: {} has left the group", job.what, absent));
      continue;
    }
    link_.rest(Link::rows, heard);
  }
}

}  // namespace moecl
