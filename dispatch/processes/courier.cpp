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

/// A range that a peer asks for, in words of 64 bits.
struct Request {
  std::uint64_t piece, offset, bytes;
};
constexpr std::uint64_t most_requests = 1 << 16;

/// Ranges one after the other, as a stream of bytes.
class Ranges {
 public:
  void add(BufferView view) {
    if (view.size_bytes != 0) views_.push_back(view);
  }
  bool empty() const { return next_ == views_.size(); }
  /// So many bytes at most, from where it stands on; moves on.
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

/// What goes on between this rank and a peer in one job: both ways first the requests, then the rows.
class Conversation {
 public:
  Conversation(const RowsJob& job, std::int32_t peer) : peer_(peer), shown_(job.shown) {
    std::vector<Request> requests;
    for (const RowsJob::Fetch& fetch : job.fetches)
      if (fetch.peer == peer) {
        requests.push_back({fetch.piece, fetch.offset, fetch.to.size_bytes});
        wanted_.add(fetch.to);
      }
    const std::uint64_t count = requests.size();
    asking_.resize(sizeof(count) + count * sizeof(Request));
    std::memcpy(asking_.data(), &count, sizeof(count));
    if (count != 0) std::memcpy(asking_.data() + sizeof(count), requests.data(), count * sizeof(Request));
  }

  std::int32_t peer() const { return peer_; }
  bool gave() const { return asked_ == asking_.size() && understood_ && given_.empty(); }
  bool got() const { return understood_ && wanted_.empty(); }

  /// Host bytes of the requests; the number that fit.
  std::size_t ask(std::span<std::byte> room) {
    const std::size_t bytes = std::min(room.size(), asking_.size() - asked_);
    if (bytes != 0) std::memcpy(room.data(), asking_.data() + asked_, bytes);
    asked_ += bytes;
    return bytes;
  }
  /// The number of bytes that were requests. Errors: invalid_data  requests for what is not shown
  std::size_t listen(std::span<const std::byte> came) {
    std::size_t used = 0;
    while (!understood_ && used < came.size()) {
      const std::size_t bytes = std::min(came.size() - used, expected_ - heard_.size());
      heard_.insert(heard_.end(), came.data() + used, came.data() + used + bytes);
      used += bytes;
      if (heard_.size() == expected_) understand();
    }
    return used;
  }
  Ranges& given() { return given_; }
  Ranges& wanted() { return wanted_; }
  bool may_give() const { return asked_ == asking_.size() && understood_; }

 private:
  void understand() {
    std::uint64_t count = 0;
    std::memcpy(&count, heard_.data(), sizeof(count));
    if (count > most_requests)
      fail(ErrorCode::invalid_data, "rank {} asks for {} ranges, at most {}", peer_, count, most_requests);
    expected_ = sizeof(count) + count * sizeof(Request);
    if (heard_.size() < expected_) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      Request request{};
      std::memcpy(&request, heard_.data() + sizeof(count) + i * sizeof(Request), sizeof(Request));
      if (request.piece >= shown_.size() || request.offset > shown_[request.piece].size_bytes ||
          request.bytes > shown_[request.piece].size_bytes - request.offset)
        fail(ErrorCode::invalid_data, "rank {} asks for {} bytes at {} of piece {}, of {} that are shown", peer_,
             request.bytes, request.offset, request.piece, shown_.size());
      given_.add(shown_[request.piece].slice(request.offset, request.bytes));
    }
    understood_ = true;
  }

  std::int32_t peer_;
  const std::vector<HeldView>& shown_;
  std::vector<std::byte> asking_, heard_;
  std::size_t asked_ = 0, expected_ = sizeof(std::uint64_t);
  bool understood_ = false;
  Ranges given_, wanted_;
};

/// For the trace.
std::string words_of(const RowsJob& job, const Link& link, std::uint64_t bytes) {
  std::string ways;
  for (const std::int32_t peer : job.peers)
    if (const std::string_view way = name(link.kind(peer, link.rank())); ways.find(way) == std::string::npos)
      ways += fmt::format("{}{}", ways.empty() ? " by " : " and ", way);
  return fmt::format("{}{}: {} bytes to rank {}", job.what, ways, bytes, link.rank());
}

}  // namespace

/// Parts of one look at a peer that are on their way between a device and the link.
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
      } catch (const std::bad_alloc&) {  // the words alone
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
  std::vector<Conversation> peers;
  for (const std::int32_t peer : job.peers) peers.emplace_back(job, peer);
  const RowsAccess shown(reads_, job.ready), wanted(writes_, job.free);
  for (Conversation& with : peers)
    if (const std::span<std::byte> room = link_.room(Link::rows, with.peer()); !room.empty())
      link_.send(Link::rows, with.peer(), with.ask(room));  // peers read it while this device comes to its rows
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
          now.out = with.ask(room);
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
          while (with.may_give() && !with.wanted().empty() && now.in < most) {
            const BufferView part = with.wanted().next(most - now.in);
            wanted.write(part, came.data() + now.in, now.events);
            now.in += part.size_bytes;
          }
        }
      moved = moved || now.out != 0 || now.in != 0;
      if (now.events.empty()) move(now);
    }
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
    // What a peer sent before it left has arrived by the time that its leaving is seen.
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
