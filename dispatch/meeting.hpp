#pragma once
// Where host threads of ranks meet.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/user_event.hpp"

namespace moecl {

/// What a rank brings to a meeting and learns from the others.
struct MeetingNote {
  std::string what;                              ///< the call; the same for all
  std::vector<std::uint64_t> numbers;            ///< sizes that others need or that must agree
  BufferView memory;                             ///< what others may read
  std::shared_ptr<const Event> ready;            ///< when they may
  std::vector<std::shared_ptr<UserEvent>> left;  ///< [members] completed by a peer of another context once it has read
  std::vector<std::shared_ptr<const Buffer>> window;  ///< [members] memory that they may put into, as each sees it
};

/// The end of a group, shared by all its meetings: the first cause wins.
class GroupFate {
 public:
  /// What an abort says that gives no reason.
  static constexpr const char* no_reason = "aborted without a reason";

  /// Later causes change nothing. Completes every watched event, so that no queue hangs.
  void end(const std::string& cause) noexcept;
  std::string cause() const;
  /// Errors: deadline_exceeded  the group ended; with the cause
  void expect_whole() const;
  /// An event that commands wait for; completed at the end of the group at the latest.
  std::shared_ptr<UserEvent> watched_event(Context& context);

 private:
  friend class Meeting;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string cause_;  ///< empty although it ended: no memory was left for words
  bool ended_ = false;
  std::vector<std::weak_ptr<UserEvent>> watched_;

  void end_locked(std::string cause);
  std::string cause_locked() const;
};

/// A meeting place of fixed members that is used again and again.
class Meeting {
 public:
  Meeting(GroupFate& fate, std::vector<std::int32_t> members)
      : fate_(fate), members_(std::move(members)), notes_(members_.size()), came_(members_.size()) {}

  /// Waits for all members and returns their notes. Stops this host thread, not a device.
  /// Errors: deadline_exceeded  somebody did not come in time, which ends the group; or the group ended
  std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note,
                                                       std::chrono::milliseconds deadline);

 private:
  GroupFate& fate_;
  std::vector<std::int32_t> members_;
  std::vector<MeetingNote> notes_;
  std::vector<bool> came_;
  std::uint64_t round_ = 0;
  std::shared_ptr<const std::vector<MeetingNote>> result_;
};

}  // namespace moecl
