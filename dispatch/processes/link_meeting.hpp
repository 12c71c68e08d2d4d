#pragma once
// Where host threads of ranks meet that are of several processes: notes go as bytes.
#include "dispatch/meeting.hpp"
#include "dispatch/processes/link.hpp"

namespace moecl {

/// What a note says of memory, events and windows stays in its process: of the memory that others show, the sizes come.
class LinkMeeting final : public MeetingPlace {
 public:
  /// @param here  of those members that are of this process
  /// @param phase  of the rank, in words: what its exchanges are parts of; may be empty
  LinkMeeting(GroupFate& fate, Link& link, std::vector<std::int32_t> members, Meeting& here, const std::string& phase);
  std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) override;
  std::shared_ptr<const std::vector<MeetingNote>> meet_here(std::int32_t member, MeetingNote note) override;

 private:
  /// @return  Notes of all members, of which those are empty that are not here
  std::shared_ptr<std::vector<MeetingNote>> notes_here(std::int32_t member, MeetingNote note);
  std::vector<std::vector<std::byte>> exchange(std::int32_t member, const std::vector<std::byte>& mine,
                                               const std::string& what);

  GroupFate& fate_;
  Link& link_;
  std::vector<std::int32_t> members_;
  Meeting& here_;
  std::vector<std::size_t> near_, apart_;  ///< members of this process, and of others
  const std::string& phase_;
  std::uint64_t round_ = 0;
};

}  // namespace moecl
