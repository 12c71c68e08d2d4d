#pragma once
// Meetings of host threads in several processes: notes travel as bytes.
#include "dispatch/meeting.hpp"
#include "dispatch/processes/link.hpp"

namespace moecl {

/// Handles of memory, events and windows in a note stay in their process. Of the memory that other processes show, only
/// the sizes arrive.
class LinkMeeting final : public MeetingPlace {
 public:
  /// @param here   the meeting of those members that are in this process
  /// @param phase  what the rank's exchanges belong to, in words; may be empty
  LinkMeeting(GroupFate& fate, Link& link, std::vector<std::int32_t> members, Meeting& here, const std::string& phase);
  std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) override;
  std::shared_ptr<const std::vector<MeetingNote>> meet_here(std::int32_t member, MeetingNote note) override;

 private:
  /// @return  Notes of all members; those of members in other processes are empty
  std::shared_ptr<std::vector<MeetingNote>> notes_here(std::int32_t member, MeetingNote note);
  std::vector<std::vector<std::byte>> exchange(std::int32_t member, const std::vector<std::byte>& mine,
                                               const std::string& what);

  GroupFate& fate_;
  Link& link_;
  std::vector<std::int32_t> members_;
  Meeting& here_;
  std::vector<std::size_t> near_, apart_;  ///< members in this process, and in other processes
  const std::string& phase_;
  std::uint64_t round_ = 0;
};

}  // namespace moecl
