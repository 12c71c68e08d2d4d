#pragma once
// Meetings of the ranks' host threads, and the end of a group.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/agreement.hpp"
#include "runtime/user_event.hpp"

namespace moecl {

/// A range of a cl_mem that holds a reference, so that the owner may release it.
struct HeldView : BufferView {
  Buffer held;

  HeldView() = default;
  HeldView(BufferView view)  // NOLINT(google-explicit-constructor): a view that is kept
      : BufferView(view), held(view.handle == nullptr ? Buffer() : Buffer::borrow(view.handle)) {}
  HeldView(const HeldView& other) : HeldView(static_cast<const BufferView&>(other)) {}
  HeldView(HeldView&&) noexcept = default;
  HeldView& operator=(const HeldView& other) { return *this = HeldView(other); }
  HeldView& operator=(HeldView&&) noexcept = default;
  ~HeldView() = default;
};

/// What a rank brings to a meeting; each rank gets the notes of all. A note lives until the last member is past it. So
/// a rank that fails meanwhile and releases its resources takes nothing from its peers.
struct MeetingNote {
  std::string what;                              ///< name of the call; the same on all ranks
  std::vector<Agreed> agreed;                    ///< the same on all ranks
  std::vector<std::uint64_t> numbers;            ///< sizes that others need
  std::vector<HeldView> memory;                  ///< what the others may read, in pieces
  std::shared_ptr<const Event> ready;            ///< completes when they may read it
  std::vector<std::shared_ptr<UserEvent>> left;  ///< [members] completed by a peer of another context once it has read
  std::vector<std::shared_ptr<const Buffer>> window;  ///< [members] memory that each may put into, as it sees it
};

/// The cause of a group's end if UserEvent::complete returns false.
inline constexpr const char* refused_event = "clSetUserEventStatus failed, and failed again";

/// The text of the exception being caught. Lifetime: its handler's
const char* text_of_exception() noexcept;

/// The end of a group, shared by all its meetings: the first cause wins.
class GroupFate {
 public:
  /// The cause of an abort without a reason.
  static constexpr const char* no_reason = "aborted without a reason";

  /// Ends the group; later causes change nothing. Completes every watched event, so that no queue hangs.
  void end(std::string_view cause) noexcept;
  std::string cause() const;
  /// If ranks are processes: tells a cause to all of them and returns the one that counts. Set before any use
  std::function<std::string(std::string_view)> settle;
  /// If ranks are processes: names those that do not run, and gives them up; may be empty. Set before any use
  std::function<std::string()> accuse;
  /// Tell the other processes nothing any more: they may be in another group already.
  std::atomic<bool> alone{false};
  /// How long a rank waits for its peers, and for a command of any device.
  std::chrono::milliseconds deadline{30000};
  /// Commands end within this time after the group's end, since nothing they wait for is left, unless a driver refuses.
  static constexpr std::chrono::milliseconds grace{1000};
  /// Stops the host until the event completes. If it does not complete in time, whatever its driver says, the group
  /// ends.
  /// Errors: device_error  a command failed; deadline_exceeded  it did not complete in time, or the group ended
  void wait(const Event& event);
  /// Errors: deadline_exceeded  the group ended; with the cause
  void expect_whole() const;
  /// Events for which later commands of the stream wait. The end of the group completes them at the latest. The wait is
  /// enqueued before any thread can complete one: PoCL 3.1 does not survive both at once.
  std::vector<std::shared_ptr<UserEvent>> awaited_events(StreamView stream, std::size_t count);
  std::shared_ptr<UserEvent> awaited_event(StreamView stream) { return awaited_events(stream, 1).front(); }

 private:
  friend class Meeting;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string cause_;  ///< empty after the end if there was no memory for the text
  bool ended_ = false;
  std::vector<std::weak_ptr<UserEvent>> watched_;

  void end_locked(std::string cause);
  std::string cause_locked() const;
};

/// A reusable barrier of fixed members that exchanges their notes.
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  /// Waits for all members and returns their notes. Blocks this host thread, not a device.
  /// Errors: deadline_exceeded  a member missed the deadline, which ends the group; or the group ended
  virtual std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) = 0;
  /// The same among the members of this process, who all call it. The notes of the others are empty.
  virtual std::shared_ptr<const std::vector<MeetingNote>> meet_here(std::int32_t member, MeetingNote note) = 0;
};

/// A meeting of threads of one process.
class Meeting final : public MeetingPlace {
 public:
  Meeting(GroupFate& fate, std::vector<std::int32_t> members)
      : fate_(fate), members_(std::move(members)), came_(members_.size()) {}
  std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) override;
  std::shared_ptr<const std::vector<MeetingNote>> meet_here(std::int32_t member, MeetingNote note) override {
    return meet(member, std::move(note));
  }
  const std::vector<std::int32_t>& members() const noexcept { return members_; }

 private:
  GroupFate& fate_;
  std::vector<std::int32_t> members_;
  std::vector<MeetingNote*> came_;  ///< notes of members that wait; null: not there yet
  std::uint64_t round_ = 0;
  std::shared_ptr<const std::vector<MeetingNote>> result_;  ///< of the last round, until all members have taken it
  std::size_t to_take_ = 0;

  std::shared_ptr<const std::vector<MeetingNote>> take();
};

}  // namespace moecl
