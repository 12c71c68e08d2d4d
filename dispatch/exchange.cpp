#include "dispatch/exchange.hpp"

#include <moecl/context.hpp>

#include <algorithm>

namespace moecl {

std::shared_ptr<const Communicator::Exchange::Notes> Communicator::Exchange::meet(MeetingNote note) const {
  ++me.meetings;
  auto notes = meeting().meet(self.rank_, std::move(note));
  const MeetingNote& first = notes->front();
  for (std::size_t r = 1; r < notes->size(); ++r) {
    const MeetingNote& note_of = (*notes)[r];
    require(note_of.what == first.what, "{}: rank {} is in {}", first.what, self.members_[r], note_of.what);
    require(note_of.agreed.size() == first.agreed.size(), "{}: rank {} brings {} things to agree about, rank {} has {}",
            first.what, self.members_[r], note_of.agreed.size(), self.members_[0], first.agreed.size());
  }
  expect_agreement(first.what, first.agreed, self.members_,
                   [&](std::size_t r, std::size_t i) { return (*notes)[r].agreed[i].value; });
  return notes;
}

std::shared_ptr<const Communicator::Exchange::Notes> Communicator::Exchange::meet_near(MeetingNote note) const {
  ++me.meetings;
  auto notes = meeting().meet_here(self.rank_, std::move(note));
  const MeetingNote& mine = (*notes)[static_cast<std::size_t>(self.rank_)];
  for (std::int32_t peer = 0; peer < self.size(); ++peer)
    if (const MeetingNote& of = (*notes)[static_cast<std::size_t>(peer)]; !is_apart(peer))
      require(of.what == mine.what, "{}: rank {} is in {}", mine.what, group_rank(peer), of.what);
  return notes;
}

StagedJob Communicator::Exchange::staged_job(std::int32_t from, BufferView source, std::int32_t to,
                                             BufferView target) const {
  StagedJob job;
  job.from_stream = stream_of(from);
  job.from = source;
  job.to = target;
  job.peer_memory = transport(from, to).peer_memory();
  job.trace = stream_of(to).trace;
  job.from_rank = self.members_[static_cast<std::size_t>(from)];
  job.to_rank = self.members_[static_cast<std::size_t>(to)];
  return job;
}

void Communicator::Exchange::await(std::int32_t peer, std::shared_ptr<const Event> ready) const {
  StagedJob job = staged_job(peer, {}, self.rank_, {});
  job.from_ready = std::move(ready);
  job.arrived = group.fate.awaited_event(lane.stream);
  lane.copier(group.fate).enqueue(std::move(job));
}

void Communicator::Exchange::await_members(const Notes& notes) const {
  std::vector<_cl_event*> events;
  events.reserve(notes.size());
  for (std::int32_t peer = 0; peer < self.size(); ++peer)
    if (peer != self.rank_ && shares_events(self.rank_, peer))
      events.push_back(notes[static_cast<std::size_t>(peer)].ready->handle());
  wait_on_stream(lane.stream, events);
}

void Communicator::Exchange::copy(const Notes& notes, const std::vector<Pull>& pulls,
                                  const std::shared_ptr<const Event>& free) {
  std::vector<StagedJob> jobs;
  jobs.reserve(static_cast<std::size_t>(std::count_if(pulls.begin(), pulls.end(), [&](const Pull& pull) {
    return pull.to.size_bytes != 0 && !is_apart(pull.peer) && !shares_events(pull.peer, self.rank_);
  })));
  std::vector<RowsJob::Fetch> fetches;
  for (const Pull& pull : pulls) {
    if (pull.to.size_bytes == 0) continue;
    const MeetingNote& note = notes[static_cast<std::size_t>(pull.peer)];
    const BufferView from = note.memory[pull.piece].slice(pull.from_offset, pull.to.size_bytes);
    if (pull.peer != self.rank_) count_received(pull.peer, pull.to.size_bytes);
    if (is_apart(pull.peer)) {
      fetches.push_back({self.members_[static_cast<std::size_t>(pull.peer)], pull.piece, pull.from_offset, pull.to});
      continue;
    }
    if (!shares_events(pull.peer, self.rank_)) {
      StagedJob& job = jobs.emplace_back(staged_job(pull.peer, from, self.rank_, pull.to));
      job.from_ready = note.ready;
      job.to_ready = free;
      continue;
    }
    _cl_event* const ready = note.ready->handle();
    enqueue_copy(lane.stream, from, pull.to, {pull.peer != self.rank_ ? WaitList(&ready, 1) : WaitList(), nullptr});
  }
  carry(notes, std::move(fetches), free);
  const auto arrivals = group.fate.awaited_events(lane.stream, jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].arrived = arrivals[i];
  // The last job that reads from a sender completes its `left` event, so that the sender goes on.
  for (std::int32_t peer = 0; peer < self.size(); ++peer) {
    if (shares_events(peer, self.rank_) || is_apart(peer)) continue;
    const auto& left = notes[static_cast<std::size_t>(peer)].left[static_cast<std::size_t>(self.rank_)];
    const auto last = std::find_if(jobs.rbegin(), jobs.rend(), [&](const StagedJob& job) {
      return job.from_stream.queue == stream_of(peer).queue;
    });
    if (last != jobs.rend())
      last->left = left;
    else if (!left->complete())
      fail(ErrorCode::device_error, "{}", refused_event);
  }
  for (StagedJob& job : jobs) lane.copier(group.fate).enqueue(std::move(job));
}

void Communicator::Exchange::run_counted(const char* what, std::vector<HeldView> shown, std::vector<Agreed> agreed,
                                         Counted counted) {
  show(what, std::move(shown), Shown::until_read, std::move(agreed), {},
       [&](const std::shared_ptr<const Notes>& notes, const std::shared_ptr<const Event>& free) {
         copy_counted(notes, std::move(counted), free);
       });
}

void Communicator::Exchange::copy_counted(const std::shared_ptr<const Notes>& notes, Counted counted,
                                          const std::shared_ptr<const Event>& free) {
  // The copy thread must not use this Exchange, which no longer exists then.
  const auto count = [received = &me.bytes_received, members = self.members_, mine = self.rank_](const Pull& pull) {
    const auto peer = static_cast<std::size_t>(members[static_cast<std::size_t>(pull.peer)]);
    if (pull.peer != mine) (*received)[peer] += pull.to.size_bytes;
    return static_cast<std::int32_t>(peer);
  };
  const std::vector<HeldView> into(counted.into.begin(), counted.into.end());
  std::vector<bool> apart;
  for (std::int32_t peer = 0; peer < self.size(); ++peer) apart.push_back(is_apart(peer));
  const auto fetches_of = [count, apart, pulls_of = counted.pulls_of](const auto& table) {
    std::vector<RowsJob::Fetch> fetches;
    for (const Pull& pull : pulls_of(table))
      if (pull.to.size_bytes != 0 && apart[static_cast<std::size_t>(pull.peer)])
        fetches.push_back({count(pull), pull.piece, pull.from_offset, pull.to});
    return fetches;
  };
  carry(*notes, {}, free, {counted.table, into, fetches_of});
  CountedJob job;
  std::vector<StagedJob> of_peer;
  for (std::int32_t peer = 0; peer < self.size(); ++peer) {
    const MeetingNote& note = (*notes)[static_cast<std::size_t>(peer)];
    StagedJob& from = of_peer.emplace_back(staged_job(peer, {}, self.rank_, {}));
    from.direct = shares_events(peer, self.rank_);
    from.from_ready = note.ready;
    from.to_ready = free;
    if (!from.direct && !is_apart(peer)) job.left.push_back(note.left[static_cast<std::size_t>(self.rank_)]);
  }
  job.free = free;
  const auto copies_of = [count, apart, notes, of_peer, pulls_of = std::move(counted.pulls_of)](const auto& table) {
    std::vector<StagedJob> jobs;
    for (const Pull& pull : pulls_of(table)) {
      const auto peer = static_cast<std::size_t>(pull.peer);
      if (pull.to.size_bytes == 0 || apart[peer]) continue;
      count(pull);
      StagedJob& copy = jobs.emplace_back(of_peer[peer]);
      copy.from = (*notes)[peer].memory[pull.piece].slice(pull.from_offset, pull.to.size_bytes);
      copy.to = pull.to;
    }
    return jobs;
  };
  job.copies = {counted.table, into, copies_of};
  job.arrived = group.fate.awaited_event(lane.stream);
  lane.stream.flush();
  lane.copier(group.fate).enqueue(std::move(job));
}

void Communicator::Exchange::carry(const Notes& notes, std::vector<RowsJob::Fetch> fetches,
                                   std::shared_ptr<const Event> free, CountedCopies<RowsJob::Fetch> counted) const {
  const MeetingNote& mine = notes[static_cast<std::size_t>(self.rank_)];
  RowsJob job;
  bool any = false;
  for (std::int32_t peer = 0; peer < self.size(); ++peer) {
    if (is_apart(peer)) job.peers.push_back(self.members_[static_cast<std::size_t>(peer)]);
    for (const HeldView& shown : notes[static_cast<std::size_t>(peer)].memory) any = any || shown.size_bytes != 0;
  }
  if (!any || job.peers.empty()) return;
  job.what = mine.what;
  for (const BufferView view : mine.memory) job.shown.emplace_back(view);
  job.fetches = std::move(fetches);
  job.counted = std::move(counted);
  job.ready = mine.ready;
  job.free = std::move(free);
  job.done = group.fate.awaited_event(lane.stream);
  job.trace = lane.stream.trace;
  lane.stream.flush();
  me.courier->enqueue(std::move(job));
}

}  // namespace moecl
