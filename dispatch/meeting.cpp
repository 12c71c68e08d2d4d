#include "dispatch/meeting.hpp"

#include <algorithm>

#include "dispatch/stream_events.hpp"
#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"

namespace moecl {

const char* text_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "the host could not allocate memory";
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of a foreign type";
  }
}

void GroupFate::wait(const Event& event) {
  const auto ended = [this] {
    const std::lock_guard lock(mutex_);
    return ended_;
  };
  if (completes_within(event, deadline, ended)) return;
  const std::string silent = accuse && !alone ? accuse() : std::string();
  end(fmt::format("a command did not complete within {} ms{}{}", deadline.count(), silent.empty() ? "" : ", nor ran ",
                  silent));
  static_cast<void>(completes_within(event, grace));  // the caller may release what the command uses
  expect_whole();
}

void GroupFate::end(std::string_view cause) noexcept {
  std::string words;
  try {
    words = cause.empty() ? no_reason : cause;
    if (settle && !alone) words = settle(words);
  } catch (const std::bad_alloc&) {  // the group ends without a text
  }
  const std::lock_guard lock(mutex_);
  end_locked(std::move(words));
}

void GroupFate::end_locked(std::string cause) {
  if (ended_) return;
  ended_ = true;
  cause_ = std::move(cause);
  for (const std::weak_ptr<UserEvent>& event : std::exchange(watched_, {}))
    if (const std::shared_ptr<UserEvent> held = event.lock()) held->complete();
  changed_.notify_all();
}

std::vector<std::shared_ptr<UserEvent>> GroupFate::awaited_events(StreamView stream, std::size_t count) {
  std::vector<std::shared_ptr<UserEvent>> events;
  std::vector<_cl_event*> handles;
  events.reserve(count), handles.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    handles.push_back(events.emplace_back(std::make_shared<UserEvent>(*stream.context))->handle());
  const std::lock_guard lock(mutex_);
  wait_on_stream(stream, handles);
  watched_.erase(std::remove_if(watched_.begin(), watched_.end(), [](const auto& seen) { return seen.expired(); }),
                 watched_.end());
  for (const std::shared_ptr<UserEvent>& event : events)
    if (ended_)
      event->complete();
    else
      watched_.emplace_back(event);
  return events;
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

std::shared_ptr<const std::vector<MeetingNote>> Meeting::take() {
  return --to_take_ == 0 ? std::move(result_) : result_;
}

std::shared_ptr<const std::vector<MeetingNote>> Meeting::meet(std::int32_t member, MeetingNote note) {
  const auto me = static_cast<std::size_t>(member);
  std::unique_lock lock(fate_.mutex_);
  if (!fate_.ended_) {
    const std::string what = note.what;
    const std::uint64_t round = round_;
    came_[me] = &note;
    if (std::all_of(came_.begin(), came_.end(), [](const MeetingNote* theirs) { return theirs != nullptr; })) {
      auto notes = std::make_shared<std::vector<MeetingNote>>();
      notes->reserve(members_.size());
      for (MeetingNote*& theirs : came_) notes->push_back(std::move(*std::exchange(theirs, nullptr)));
      result_ = std::move(notes);
      to_take_ = members_.size();
      ++round_;
      fate_.changed_.notify_all();
      return take();
    }
    const auto over = [&] { return round_ != round || fate_.ended_; };
    if (!fate_.changed_.wait_for(lock, fate_.deadline, over)) {
      std::string absent;
      for (std::size_t m = 0; m < members_.size(); ++m)
        if (came_[m] == nullptr) absent += fmt::format("{}{}", absent.empty() ? "" : ", ", members_[m]);
      came_[me] = nullptr;  // this note dies with the call
      lock.unlock();
      fate_.end(
          fmt::format("{}: rank {} waited {} ms for rank {}", what, members_[me], fate_.deadline.count(), absent));
      lock.lock();
    } else if (round_ != round) {
      return take();
    }
  }
  const std::string cause = fate_.cause_locked();
  lock.unlock();
  fail(ErrorCode::deadline_exceeded, "the group of ranks ended: {}", cause);
}

}  // namespace moecl
