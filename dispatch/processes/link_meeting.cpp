#include "dispatch/processes/link_meeting.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/check.hpp"

namespace moecl {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

/// Upper bound for a note, which holds token counts and row ends and is far shorter.
constexpr std::uint64_t most_note_bytes = 64 << 20;

void put_number(Bytes& to, std::uint64_t value) {
  const auto* const first = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), first, first + sizeof(value));
}

/// Writes a list, preceded by its length.
template <class List, class Value>
void put_list(Bytes& to, const List& list, Value value_of) {
  put_number(to, list.size());
  for (const auto& item : list) put_number(to, static_cast<std::uint64_t>(value_of(item)));
}

/// Reads what a peer wrote. It may contain anything, so every length is checked.
class Reader {
 public:
  Reader(const Bytes& from, std::int32_t rank) : from_(from), rank_(rank) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    expect(sizeof(value));
    std::memcpy(&value, from_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  /// Reads the length of a list of elements of this size.
  std::uint64_t length(std::uint64_t element_bytes) {
    const std::uint64_t count = number();
    if (count > (from_.size() - at_) / element_bytes) refuse();
    return count;
  }
  std::string text() {
    std::string value(length(1), '\0');
    std::memcpy(value.data(), from_.data() + at_, value.size());
    at_ += value.size();
    return value;
  }
  [[noreturn]] void refuse() const {
    fail(ErrorCode::invalid_data, "rank {} brings a note of {} bytes that ends at {}", rank_, from_.size(), at_);
  }

 private:
  void expect(std::uint64_t bytes) const {
    if (bytes > from_.size() - at_) refuse();
  }
  const Bytes& from_;
  std::int32_t rank_;
  std::size_t at_ = 0;
};

Bytes written(const MeetingNote& note, const std::vector<std::int32_t>& members, std::uint64_t round) {
  Bytes bytes;
  put_number(bytes, static_cast<std::uint64_t>(digest_of(members.data(), members.size() * sizeof(members[0]))));
  put_number(bytes, round);
  put_number(bytes, note.what.size());
  const auto* const what = reinterpret_cast<const std::byte*>(note.what.data());
  bytes.insert(bytes.end(), what, what + note.what.size());
  put_list(bytes, note.agreed, [](const Agreed& agreed) { return agreed.value; });
  put_list(bytes, note.numbers, [](std::uint64_t number) { return number; });
  put_list(bytes, note.memory, [](const HeldView& view) { return view.size_bytes; });
  return bytes;
}

MeetingNote read(const Bytes& bytes, const MeetingNote& mine, const std::vector<std::int32_t>& members,
                 std::uint64_t round, std::int32_t rank) {
  Reader from(bytes, rank);
  MeetingNote note;
  const bool same =
      from.number() == static_cast<std::uint64_t>(digest_of(members.data(), members.size() * sizeof(members[0])));
  const std::uint64_t theirs = from.number();
  note.what = from.text();
  if (!same || theirs != round)
    fail(ErrorCode::invalid_argument, "{}: rank {} is in {} {}", mine.what, rank, note.what,
         same ? fmt::format("number {} of these ranks, not {}", theirs, round) : "of other ranks");
  for (std::uint64_t count = from.length(8), i = 0; i < count; ++i) {
    // Names and printers of values do not travel: every rank has its own.
    note.agreed.push_back(i < mine.agreed.size() ? mine.agreed[i] : Agreed("?", 0));
    note.agreed.back().value = static_cast<std::int64_t>(from.number());
  }
  note.numbers.resize(from.length(8));
  for (std::uint64_t& number : note.numbers) number = from.number();
  for (std::uint64_t count = from.length(8); count != 0; --count)
    note.memory.emplace_back(BufferView{nullptr, 0, from.number()});
  return note;
}

}  // namespace

LinkMeeting::LinkMeeting(GroupFate& fate, Link& link, std::vector<std::int32_t> members, Meeting& here,
                         const std::string& phase)
    : fate_(fate), link_(link), members_(std::move(members)), here_(here), phase_(phase) {
  const std::vector<std::int32_t>& near = here.members();
  for (std::size_t m = 0; m < members_.size(); ++m)
    (std::find(near.begin(), near.end(), members_[m]) != near.end() ? near_ : apart_).push_back(m);
}

std::shared_ptr<const std::vector<MeetingNote>> LinkMeeting::meet(std::int32_t member, MeetingNote note) {
  const std::string place = phase_.empty() ? note.what : fmt::format("{} of {}", note.what, phase_);
  link_.in_phase("in " + place);
  // Other processes first: they must not wait because a thread of this process is missing.
  const std::vector<Bytes> all = exchange(member, written(note, members_, round_), note.what);
  const auto notes = notes_here(member, std::move(note));
  link_.in_phase("after " + place);
  const MeetingNote& mine = (*notes)[static_cast<std::size_t>(member)];
  for (const std::size_t m : apart_) (*notes)[m] = read(all[m], mine, members_, round_, members_[m]);
  ++round_;
  return notes;
}

std::shared_ptr<const std::vector<MeetingNote>> LinkMeeting::meet_here(std::int32_t member, MeetingNote note) {
  return notes_here(member, std::move(note));
}

std::shared_ptr<std::vector<MeetingNote>> LinkMeeting::notes_here(std::int32_t member, MeetingNote note) {
  auto notes = std::make_shared<std::vector<MeetingNote>>(members_.size());
  if (near_.size() == 1) {
    (*notes)[near_.front()] = std::move(note);
    return notes;
  }
  const auto place = std::find(near_.begin(), near_.end(), static_cast<std::size_t>(member)) - near_.begin();
  const auto of_threads = here_.meet(static_cast<std::int32_t>(place), std::move(note));
  for (std::size_t i = 0; i < near_.size(); ++i) (*notes)[near_[i]] = (*of_threads)[i];
  return notes;
}

std::vector<Bytes> LinkMeeting::exchange(std::int32_t member, const Bytes& mine, const std::string& what) {
  std::vector<Bytes> received(members_.size());
  if (mine.size() > most_note_bytes)
    fail(ErrorCode::invalid_argument, "{}: a note of {} bytes, at most {}", what, mine.size(), most_note_bytes);
  Bytes message;
  put_number(message, mine.size());
  message.insert(message.end(), mine.begin(), mine.end());
  std::vector<std::size_t> sent(members_.size()), got(members_.size());
  const auto complete = [&](std::size_t m) { return got[m] >= 8 && got[m] == 8 + received[m].size(); };
  std::vector<std::array<std::byte, 8>> heads(members_.size());
  Clock::time_point end = Clock::now() + fate_.deadline;
  for (;;) {
    if (const std::string cause = link_.ended(); !cause.empty()) fate_.end(cause);
    fate_.expect_whole();
    const std::uint32_t heard = link_.bell(Link::notes);
    bool moved = false, done = true;
    for (const std::size_t m : apart_) {
      const std::int32_t peer = members_[m];
      for (std::span<std::byte> room; sent[m] < message.size() && !(room = link_.room(Link::notes, peer)).empty();) {
        const std::size_t bytes = std::min(room.size(), message.size() - sent[m]);
        std::memcpy(room.data(), message.data() + sent[m], bytes);
        link_.send(Link::notes, peer, bytes);
        sent[m] += bytes;
        moved = true;
      }
      for (std::span<const std::byte> came; !complete(m) && !(came = link_.arrived(Link::notes, peer)).empty();) {
        const bool head = got[m] < 8;
        std::byte* const to = head ? heads[m].data() + got[m] : received[m].data() + (got[m] - 8);
        const std::size_t bytes = std::min(came.size(), head ? 8 - got[m] : received[m].size() - (got[m] - 8));
        std::memcpy(to, came.data(), bytes);
        link_.take(Link::notes, peer, bytes);
        got[m] += bytes;
        moved = true;
        if (got[m] != 8 || !head) continue;
        std::uint64_t length = 0;
        std::memcpy(&length, heads[m].data(), sizeof(length));
        if (length > most_note_bytes)
          fail(ErrorCode::invalid_data, "{}: rank {} announces a note of {} bytes", what, peer, length);
        received[m].resize(length);
      }
      done = done && sent[m] == message.size() && complete(m);
      if (!complete(m) && !moved && link_.has_left(peer) && link_.arrived(Link::notes, peer).empty()) {
        link_.give_up({peer});
        fate_.end(fmt::format("{}: {} has left the group", what, link_.describe(peer)));
      }
    }
    if (done && link_.settled(Link::notes)) return received;
    if (moved) continue;
    if (Clock::now() >= end) {
      std::vector<std::int32_t> missed = link_.silent();
      if (missed.empty())
        for (const std::size_t m : apart_)
          if (!complete(m)) missed.push_back(members_[m]);
      fate_.end(fmt::format("{}: rank {} waited {} ms for {}", what, members_[static_cast<std::size_t>(member)],
                            fate_.deadline.count(), accused(link_, missed)));
      continue;
    }
    link_.rest(Link::notes, heard);
  }
}

}  // namespace moecl
