#pragma once
// Where host threads of ranks meet that are processes: notes go as bytes.
#include "dispatch/meeting.hpp"
#include "dispatch/processes/link.hpp"

namespace moecl {

/// What a note says of memory, events and windows stays with its rank: of the memory that others show, the sizes come.
class LinkMeeting final : public MeetingPlace {
 public:
  /// @param phase  of the rank, in words: what its exchanges are parts of; may be empty
  LinkMeeting(GroupFate& fate, Link& link, std::vector<std::int32_t> members, const std::string& phase)
      : fate_(fate), link_(link), members_(std::move(members)), phase_(phase) {}
  std::shared_ptr<const std::vector<MeetingNote>> meet(std::int32_t member, MeetingNote note) override;

 private:
  std::vector<std::vector<std::byte>> exchange(std::int32_t member, const std::vector<std::byte>& mine,
                                               const std::string& what);

  GroupFate& fate_;
  Link& link_;
  std::vector<std::int32_t> members_;
  const std::string& phase_;
  std::uint64_t round_ = 0;
};

}  // namespace moecl
