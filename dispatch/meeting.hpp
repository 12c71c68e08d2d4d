#pragma once
// Where host threads of ranks meet.
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

/// A range of a cl_mem with a reference to it, so that its owner may let go.
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

/// What a rank brings to a meeting and learns from the others. It lives until the last member is past it: a rank that
/// fails meanwhile, and lets go of what it has, takes nothing from its peers.
struct MeetingNote {
  std::string what;                              ///< the call; the same for all
  std::vector<Agreed> agreed;                    ///< the same for all
  std::vector<std::uint64_t> numbers;            ///< sizes that others need
  std::vector<HeldView> memory;                  ///< what others may read, in pieces
  std::shared_ptr<const Event> ready;            ///< when they may
  std::vector<std::shared_ptr<UserEvent>> left;  ///< [members] completed by a peer of another context once it has read
  std::vector<std::shared_ptr<const Buffer>> window;  ///< [members] memory that they may put into, as each sees it
};

/// Why a group ends where UserEvent::complete gives false.
inline constexpr const char* refused_event = "clSetUserEventStatus failed, and failed again";

/// What the exception being caught says. Lifetime: its handler's
const char* text_of_exception() noexcept;

/// The end of a group, shared by all its meetings: the first cause wins.
class GroupFate {
 public:
  /// What an abort says that gives no reason.
  static constexpr const char* no_reason = "aborted without a reason";

  /// Later causes change nothing. Completes every watched event, so that no queue hangs.
  void end(std::string_view cause) noexcept;
  std::string cause() const;
  /// Where ranks are processes: tells a cause to all of them, and gives the one that stands. Set before any use
  std::function<std::string(std::string_view)> settle;
  /// Where ranks are processes: those that do not run, in words, which are given up; may be empty. Set before any use
  std::function<std::string()> accuse;
  /// Nothing is told any more: the others may be in another group already.
  std::atomic<bool> alone{false};
  /// How long a rank waits for its peers, and for a command of any device.
  std::chrono::milliseconds deadline{30000};
  /// In which commands end after the group's end, since nothing that they wait for is left, but where a driver refuses.
  static constexpr std::chrono::milliseconds grace{1000};
  /// Stops the host until the event completes; if it does not in time, whatever its driver says, the group ends.
  /// Errors: device_error  a command failed; deadline_exceeded  it did not complete in time, or the group ended
  void wait(const Event& event);
  /// Errors: deadline_exceeded  the group ended; with the cause
  void expect_whole() const;
  /// Events that what the stream is given next waits for; completed at the end of the group at the latest. The wait is
  /// enqueued before anybody can complete one: PoCL 3.1 does not survive both at once.
  std::vector<std::shared_ptr<UserEvent>> awaited_events(StreamView stream, std::size_t count);
  std::shared_ptr<UserEvent> awaited_event(StreamView stream) { return awaited_events(stream, 1).front(); }

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
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  /// Waits for all members and returns their notes. Stops this host thread, not a device.
  /// Errors: deadline_exceeded  somebody did not come in time, which ends the group; or the group ended
  virtual std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) = 0;
  /// The same of the members that are of this process, who all call it: the others' notes are empty.
  virtual std::shared_ptr<const std::vector<MeetingNote>> meet_here(std::int32_t member, MeetingNote note) = 0;
};

/// Of threads of one process.
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
  std::vector<MeetingNote*> came_;  ///< of those who wait; null: not there yet
  std::uint64_t round_ = 0;
  std::shared_ptr<const std::vector<MeetingNote>> result_;  ///< of the last round, until all members have taken it
  std::size_t to_take_ = 0;

  std::shared_ptr<const std::vector<MeetingNote>> take();
};

}  // namespace moecl
