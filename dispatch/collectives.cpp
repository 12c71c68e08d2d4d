#include <moecl/combine.hpp>
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/index_vectors.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "dispatch/exchange.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

std::uint64_t row_bytes(const TensorView& rows) {
  return static_cast<std::uint64_t>(rows.shape[1]) * size_bytes(rows.dtype);
}

template <class Piece>
std::vector<HeldView> shown_of(const std::vector<Piece>& pieces) {
  std::vector<HeldView> shown;
  shown.reserve(pieces.size());
  for (const Piece& piece : pieces) shown.emplace_back(piece.send);
  return shown;
}

/// Bytes of one row, summed over all pieces.
template <class Piece>
std::uint64_t row_bytes_of(const std::vector<Piece>& pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.row_bytes;
  return bytes;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<RankGroup::State> group, std::vector<std::int32_t> members,
                           std::int32_t rank)
    : group_(std::move(group)), members_(std::move(members)), rank_(rank) {}

Communicator::Lane& Communicator::lane() const {
  RankGroup::State::Rank& me = group_->rank(members_[static_cast<std::size_t>(rank_)]);
  if (lane_ == nullptr) return me.main;
  const StreamView stream = me.main.stream;
  if (lane_->stream.queue == nullptr || (lane_->stream.trace != nullptr) != (stream.trace != nullptr)) {
    lane_->own = Stream::beside(stream, stream.trace != nullptr);
    lane_->stream = lane_->own;
  }
  return *lane_;
}

StreamView Communicator::stream() const { return lane().stream; }

StreamView Communicator::rank_stream() const {
  return group_->rank(members_[static_cast<std::size_t>(rank_)]).main.stream;
}

Communicator Communicator::beside() const {
  Communicator other = *this;
  other.lane_ = std::make_shared<Lane>();
  return other;
}

void Communicator::wait(const Event& event) const {
  group_->fate.wait(event);
  group_->fate.expect_whole();  // otherwise bytes that were to come may be missing
}

void Communicator::fork() const {
  if (lane_ == nullptr) return;
  enqueue_wait(stream(), enqueue_record(rank_stream()));
}

void Communicator::join() const {
  if (lane_ == nullptr) return;
  enqueue_wait(rank_stream(), enqueue_record(stream()));
}

std::int32_t Communicator::ranks_per_node() const {
  if (group_->nodes.empty()) return size();
  std::vector<std::int32_t> runs;
  std::int32_t last = -1;
  for (const std::int32_t member : members_) {
    const std::int32_t node = group_->nodes[static_cast<std::size_t>(member)];
    if (node != last) runs.push_back(0);
    last = node;
    ++runs.back();
  }
  for (const std::int32_t run : runs)
    if (run != runs.front())
      fail(ErrorCode::unsupported, "nodes have {} of the ranks in turn: runs of one size are needed",
           fmt::join(runs, ", "));
  return runs.front();
}

const TransportChoice& Communicator::transport(std::int32_t peer) const {
  require(peer >= 0 && peer < size(), "communicator: rank {} is not in [0, {})", peer, size());
  return group_->choice(members_[static_cast<std::size_t>(peer)], members_[static_cast<std::size_t>(rank_)]);
}

std::uint64_t Communicator::bytes_received() const {
  const auto& from = group_->rank(members_[static_cast<std::size_t>(rank_)]).bytes_received;
  return std::accumulate(from.begin(), from.end(), std::uint64_t{0});
}

std::uint64_t Communicator::meetings() const {
  return group_->rank(members_[static_cast<std::size_t>(rank_)]).meetings;
}

std::uint64_t Communicator::bytes_received(std::int32_t peer) const {
  require(peer >= 0 && peer < size(), "communicator: rank {} is not in [0, {})", peer, size());
  return group_->rank(members_[static_cast<std::size_t>(rank_)])
      .bytes_received[static_cast<std::size_t>(members_[static_cast<std::size_t>(peer)])];
}

Communicator Communicator::part(const std::vector<std::int32_t>& members) const {
  std::vector<std::int32_t> ranks;
  std::int32_t mine = -1;
  for (const std::int32_t member : members) {
    require(member >= 0 && member < size(), "part: rank {} is not in [0, {})", member, size());
    if (member == rank_) mine = static_cast<std::int32_t>(ranks.size());
    const std::int32_t rank = members_[static_cast<std::size_t>(member)];
    require(std::find(ranks.begin(), ranks.end(), rank) == ranks.end(), "part: rank {} is named twice", member);
    ranks.push_back(rank);
  }
  require(mine >= 0, "part: rank {} is not among its {} members", rank_, members.size());
  Communicator those(group_, std::move(ranks), mine);
  those.lane_ = lane_;
  return those;
}

void Communicator::abort(std::string_view cause) const noexcept {
  try {
    group_->fate.end(fmt::format("rank {}: {}", members_[static_cast<std::size_t>(rank_)],
                                 cause.empty() ? GroupFate::no_reason : cause));
  } catch (const std::bad_alloc&) {
    group_->fate.end(cause);
  }
}

void Communicator::abort_for_exception() const noexcept { abort(text_of_exception()); }

std::vector<std::vector<std::int64_t>> Communicator::share(const char* what, const std::vector<std::int64_t>& mine,
                                                           std::vector<Agreed> agreed) const {
  return together([&] {
    Exchange exchange(*this);
    MeetingNote note;
    note.what = what;
    note.agreed = std::move(agreed);
    note.numbers.assign(mine.begin(), mine.end());
    const auto notes = exchange.meet(std::move(note));
    std::vector<std::vector<std::int64_t>> all;
    all.reserve(notes->size());
    for (const MeetingNote& of : *notes) all.emplace_back(of.numbers.begin(), of.numbers.end());
    return all;
  });
}

void Communicator::barrier() const {
  together([&] {
    Exchange(*this).run("barrier", {}, Shown::until_read, {}, {},
                        [](const Exchange::Notes&) { return std::vector<Exchange::Pull>(); });
  });
}

void Communicator::all_gather(BufferView send, BufferView recv) const {
  all_gather_v(send, recv, std::vector<std::uint64_t>(members_.size(), send.size_bytes));
}

void Communicator::all_gather_v(BufferView send, BufferView recv, const std::vector<std::uint64_t>& bytes) const {
  const std::vector<std::int64_t> rows(bytes.begin(), bytes.end());
  together([&] { Exchange(*this).gather({{send, recv, 1}}, rows, Shown::until_read); });
}

void Communicator::Exchange::gather(const std::vector<Piece>& pieces, std::span<const std::int64_t> rows, Shown stays) {
  require(rows.size() == self.members_.size(), "all_gather: sizes of {} ranks in a group of {}", rows.size(),
          self.size());
  run("all_gather", shown_of(pieces), stays,
      {{"sizes", rows.data(), rows.size()}, {"bytes of a row", row_bytes_of(pieces)}}, {}, [&](const Notes& notes) {
        std::vector<Pull> pulls;
        pulls.reserve(pieces.size() * notes.size());
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          const Piece& piece = pieces[i];
          std::uint64_t at = 0;
          for (std::size_t p = 0; p < notes.size(); ++p) {
            const std::uint64_t bytes = static_cast<std::uint64_t>(rows[p]) * piece.row_bytes;
            require(notes[p].memory[i].size_bytes >= bytes, "all_gather: rank {} brings {} bytes, {} were announced",
                    self.members_[p], notes[p].memory[i].size_bytes, bytes);
            const auto peer = static_cast<std::int32_t>(p);
            const BufferView to = piece.recv.slice(at, bytes);
            const bool in_place =
                peer == self.rank_ && to.handle == piece.send.handle && to.offset_bytes == piece.send.offset_bytes;
            if (!in_place) pulls.push_back({peer, 0, to, i});
            at += bytes;
          }
        }
        return pulls;
      });
}

void Communicator::broadcast(BufferView data, std::int32_t root) const {
  together([&] {
    require(root >= 0 && root < size(), "broadcast: root {} is not in [0, {})", root, size());
    Exchange(*this).run("broadcast", {data}, Shown::until_read, {{"root", root}, {"bytes", data.size_bytes}}, {},
                        [&](const Exchange::Notes&) {
                          std::vector<Exchange::Pull> pulls;
                          if (root != rank_) pulls.push_back({root, 0, data});
                          return pulls;
                        });
  });
}

void Communicator::all_to_all_v(BufferView send, const Blocks& sends, BufferView recv, const Blocks& receives) const {
  const auto runs_of = [](const Blocks& blocks) {
    return Exchange::Runs{{blocks.offsets.begin(), blocks.offsets.end()}, {blocks.bytes.begin(), blocks.bytes.end()}};
  };
  together([&] {
    Exchange(*this).all_to_all({{send, recv, 1}}, runs_of(sends), runs_of(receives), Shown::until_read);
  });
}

void Communicator::Exchange::all_to_all(const std::vector<Piece>& pieces, const Runs& sends, const Runs& receives,
                                        Shown stays) {
  const std::size_t ranks = self.members_.size();
  for (const Runs* runs : {&sends, &receives})
    require(runs->first.size() == ranks && runs->rows.size() == ranks,
            "all_to_all_v: {} offsets and {} sizes in a group of {}", runs->first.size(), runs->rows.size(), ranks);
  std::vector<std::uint64_t> numbers;
  numbers.reserve(2 * ranks);
  for (const std::vector<std::int64_t>* list : {&sends.first, &sends.rows})
    numbers.insert(numbers.end(), list->begin(), list->end());
  run("all_to_all_v", shown_of(pieces), stays, {{"pieces", pieces.size()}, {"bytes of a row", row_bytes_of(pieces)}},
      std::move(numbers), [&](const Notes& notes) {
        const auto mine = static_cast<std::size_t>(self.rank_);
        std::vector<Pull> pulls;
        pulls.reserve(pieces.size() * ranks);
        for (std::size_t i = 0; i < pieces.size(); ++i)
          for (std::size_t peer = 0; peer < ranks; ++peer) {
            const auto bytes_of = [&](auto rows) { return static_cast<std::uint64_t>(rows) * pieces[i].row_bytes; };
            const std::uint64_t *const theirs = notes[peer].numbers.data(), bytes = bytes_of(theirs[ranks + mine]);
            require(bytes == bytes_of(receives.rows[peer]),
                    "all_to_all_v: rank {} sends {} bytes to rank {}, which expects {}", self.members_[peer], bytes,
                    self.members_[mine], bytes_of(receives.rows[peer]));
            pulls.push_back({static_cast<std::int32_t>(peer), bytes_of(theirs[mine]),
                             pieces[i].recv.slice(bytes_of(receives.first[peer]), bytes), i});
          }
        return pulls;
      });
}

void Communicator::reduce_scatter(TensorView data, TensorView out, const std::vector<std::int64_t>& rows) const {
  together([&] { Exchange(*this).reduce_scatter(data, out, rows, Shown::until_read); });
}

void Communicator::Exchange::reduce_scatter(TensorView data, TensorView out, std::span<const std::int64_t> rows,
                                            Shown stays) {
  const std::int64_t ranks = self.size();
  require(rows.size() == self.members_.size(), "reduce_scatter: rows of {} ranks in a group of {}", rows.size(), ranks);
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  require(data.rank == 2 && data.shape[0] == total && data.contiguous() && is_activation_dtype(data.dtype),
          "reduce_scatter: data: expected contiguous f32, f16 or bf16 [{}, H], got {}", total, data);
  const std::int64_t mine = rows[static_cast<std::size_t>(self.rank_)];
  require(out.rank == 2 && out.shape[0] == mine && out.shape[1] == data.shape[1] && is_activation_dtype(out.dtype),
          "reduce_scatter: out: expected f32, f16 or bf16 [{}, {}], got {}", mine, data.shape[1], out);
  const StreamView stream = lane.stream;
  WorkspaceLayout layout;
  const std::uint64_t part_bytes = static_cast<std::uint64_t>(mine) * row_bytes(data);
  const std::uint64_t parts = layout.add(part_bytes * static_cast<std::uint64_t>(ranks));
  const std::uint64_t index = layout.add(static_cast<std::uint64_t>(mine * ranks) * sizeof(std::int32_t));
  const BufferView scratch = lane.scratch.reserve(*stream.context, std::max<std::uint64_t>(layout.total_bytes(), 1));
  run("reduce_scatter", {data.buffer.slice(0, data.size_bytes())}, stays,
      {{"rows", rows.data(), rows.size()}, {"width", data.shape[1]}, {"dtype", data.dtype}}, {}, [&](const Notes&) {
        const std::int64_t first = std::accumulate(rows.begin(), rows.begin() + self.rank_, std::int64_t{0});
        const std::uint64_t from = static_cast<std::uint64_t>(first) * row_bytes(data);
        std::vector<Pull> pulls;
        pulls.reserve(self.members_.size());
        for (std::int32_t peer = 0; peer < self.size(); ++peer) {
          const std::uint64_t to = parts + static_cast<std::uint64_t>(peer) * part_bytes;
          pulls.push_back({peer, from, scratch.slice(to, part_bytes)});
        }
        return pulls;
      });
  if (mine == 0) return;
  // The sum over ranks is a combine of `ranks` rows a token with weight 1.
  const TensorView slots(scratch.slice(index, static_cast<std::uint64_t>(mine * ranks) * sizeof(std::int32_t)),
                         DType::i32, {mine, ranks});
  index_vectors::enqueue(stream, index_vectors::ColumnOrder{slots});
  combine::Args sum;
  sum.rows = TensorView(scratch.slice(parts, part_bytes * static_cast<std::uint64_t>(ranks)), data.dtype,
                        {mine * ranks, data.shape[1]});
  sum.slot_rows = TensorView(slots.buffer, DType::i32, {mine * ranks});
  sum.out = out;
  combine::enqueue(stream, sum);
}

void Communicator::all_reduce(TensorView data) const {
  together([&] {
    require(data.rank == 2 && data.contiguous(), "all_reduce: expected contiguous [N, H], got {}", data);
    const Share mine = Exchange::summed_by(data, size(), rank_);
    Exchange(*this).all_reduce(data, data.rows(mine.begin, mine.count), Shown::until_read);
  });
}

void Communicator::Exchange::all_reduce(TensorView data, TensorView share, Shown stays) {
  const std::vector<std::int64_t> rows = shares_of(data.shape[0], self.size());
  reduce_scatter(data, share, rows, stays);
  gather({{share.buffer.slice(0, share.size_bytes()), data.buffer.slice(0, data.size_bytes()), row_bytes(data)}}, rows,
         stays);
}

}  // namespace moecl
