#include "dispatch/meeting.hpp"

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {

void GroupFate::end(const std::string& cause) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    end_locked(cause.empty() ? no_reason : cause);
  } catch (const std::bad_alloc&) {  // the group ends without words
    end_locked({});
  }
}

void GroupFate::end_locked(std::string cause) {
  if (ended_) return;
  ended_ = true;
  cause_ = std::move(cause);
  for (const std::weak_ptr<UserEvent>& event : std::exchange(watched_, {}))
    if (const std::shared_ptr<UserEvent> held = event.lock()) held->complete();
  changed_.notify_all();
}

std::shared_ptr<UserEvent> GroupFate::watched_event(Context& context) {
  auto event = std::make_shared<UserEvent>(context);
  const std::lock_guard lock(mutex_);
  if (ended_) {
    event->complete();
  } else {
    watched_.erase(std::remove_if(watched_.begin(), watched_.end(), [](const auto& seen) { return seen.expired(); }),
                   watched_.end());
    watched_.push_back(event);
  }
  return event;
}

std::string GroupFate::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_locked();
}

std::string GroupFate::cause_locked() const { return ended_ && cause_.empty() ? "out of memory" : cause_; }

void GroupFate::expect_whole() const {
  if (const std::string why = cause(); !why.empty())
    fail(ErrorCode::deadline_exceeded, "the group of ranks ended: {}", why);
}

std::shared_ptr<const std::vector<MeetingNote>> Meeting::meet(std::int32_t member, MeetingNote note,
                                                              std::chrono::milliseconds deadline) {
  const auto me = static_cast<std::size_t>(member);
  std::unique_lock lock(fate_.mutex_);
  if (!fate_.ended_) {
    const std::string what = note.what;
    const std::uint64_t round = round_;
    notes_[me] = std::move(note);
    came_[me] = true;
    if (std::all_of(came_.begin(), came_.end(), [](bool came) { return came; })) {
      result_ = std::make_shared<const std::vector<MeetingNote>>(
          std::exchange(notes_, std::vector<MeetingNote>(members_.size())));
      came_.assign(members_.size(), false);
      ++round_;
      fate_.changed_.notify_all();
      return result_;
    }
    const auto over = [&] { return round_ != round || fate_.ended_; };
    if (!fate_.changed_.wait_for(lock, deadline, over)) {
      std::string absent;
      for (std::size_t m = 0; m < members_.size(); ++m)
        if (!came_[m]) absent += fmt::format("{}{}", absent.empty() ? "" : ", ", members_[m]);
      fate_.end_locked(
          fmt::format("{}: rank {} waited {} ms for rank {}", what, members_[me], deadline.count(), absent));
    } else if (round_ != round) {
      return result_;
    }
  }
  const std::string cause = fate_.cause_locked();
  lock.unlock();
  fail(ErrorCode::deadline_exceeded, "the group of ranks ended: {}", cause);
}

}  // namespace moecl
