#include "dispatch/put_window.hpp"

#include <moecl/context.hpp>
#include <moecl/fault.hpp>
#include <moecl/workspace.hpp>

#include <cstring>

namespace moecl {
namespace {

/// How many times a kernel polls a signal in one millisecond of the deadline. A poll of peer memory over NVLink takes
/// about 0.5 us, one of a CPU's cache about 0.03 us.
std::uint64_t looks_a_millisecond(StreamView stream) {
  return stream.device->caps.type == DeviceType::cpu ? 40'000 : 2'000;
}

/// Steps between two reads of `late_` by the host: copying a few bytes takes as long as an exchange of a few tokens.
constexpr std::int32_t steps_between_looks = 16;

}  // namespace

std::string PutWindow::reject(const Communicator& ranks) {
  if (ranks.size() == 1) return "one rank";
  if (ranks.size() > window_put::most_ranks) return fmt::format("more than {} ranks", window_put::most_ranks);
  const Communicator::Exchange exchange(ranks);
  for (std::int32_t from = 0; from < ranks.size(); ++from)
    for (std::int32_t to = 0; to < ranks.size(); ++to)
      if (from != to && exchange.transport(from, to).peer_memory() == nullptr)
        return fmt::format("no peer window from rank {} to rank {}", from, to);
  return {};
}

std::uint64_t PutWindow::max_bytes(const Communicator& ranks) { return ranks.group_->options.peer_memory->max_bytes(); }

bool PutWindow::kernels_wait() const { return ranks_.group_->options.peer_memory->kernels_may_wait(); }

PutWindow::Half PutWindow::agree(const Communicator::Exchange& exchange) const {
  const StreamView stream = exchange.lane.stream;
  const auto mine = static_cast<std::size_t>(ranks_.rank());
  std::vector<StreamView> users;
  for (std::int32_t peer = 0; peer < ranks_.size(); ++peer)
    if (peer != ranks_.rank()) users.push_back(exchange.stream_of(peer));
  std::vector<Buffer> views = exchange.group.options.peer_memory->allocate(stream, users, half_bytes_);
  enqueue_fill(stream, views.front().view(), 0);
  exchange.group.fate.wait(*recorded(stream));  // before any peer stores into it
  MeetingNote note{"put window", {{"bytes", half_bytes_}}, {}, {}, nullptr, {}, {}};
  for (std::size_t peer = 0, user = 1; peer < static_cast<std::size_t>(ranks_.size()); ++peer)
    note.window.push_back(std::make_shared<const Buffer>(std::move(views[peer == mine ? 0 : user++])));
  const auto notes = exchange.meet(std::move(note));
  Half half;
  for (const MeetingNote& of : *notes) half.push_back(of.window[mine]);
  return half;
}

PutWindow::PutWindow(const Communicator& ranks, std::uint64_t half_bytes) : ranks_(ranks), half_bytes_(half_bytes) {
  ranks_.together([&] {
    const Communicator::Exchange exchange(ranks_);
    const StreamView stream = exchange.lane.stream;
    WorkspaceLayout layout;
    const TensorView even = layout.add(DType::i64, {ranks.size()}), odd = layout.add(DType::i64, {ranks.size()}),
                     late = layout.add(DType::i32, {4});
    words_ = Buffer(*stream.context, layout.total_bytes());
    enqueue_fill(stream, words_.view(), 0);
    addresses_ = {tensor_in(words_.view(), even), tensor_in(words_.view(), odd)};
    late_ = tensor_in(words_.view(), late);
    known_late_ = std::make_unique<PinnedMemory>(stream, sizeof(FaultWord));
    std::memset(known_late_->data(), 0, sizeof(FaultWord));
    for (std::size_t half = 0; half < 2; ++half) {
      halves_[half] = agree(exchange);
      for (std::int32_t rank = 0; rank < ranks.size(); ++rank)
        window_put::enqueue(
            stream, window_put::Address{halves_[half][static_cast<std::size_t>(rank)]->view(), rank, addresses_[half]});
    }
  });
}

void PutWindow::next() {
  FaultWord late;
  std::memcpy(&late, known_late_->data(), sizeof(late));
  if (const std::string what = describe(late); !what.empty()) {
    ranks_.abort(what);
    fail(ErrorCode::deadline_exceeded, "{}", what);
  }
  ++step_;
}

window_put::Windows PutWindow::windows() const {
  window_put::Windows to;
  to.addresses = addresses_[half()];
  to.rank = ranks_.rank();
  to.step = (step_ + 1) / 2;  // of this half
  to.late = late_;
  if (kernels_wait())
    to.patience =
        static_cast<std::uint64_t>(ranks_.group_->options.deadline.count()) * looks_a_millisecond(ranks_.stream());
  return to;
}

BufferView PutWindow::memory() const {
  return halves_[half()][static_cast<std::size_t>(ranks_.rank())]->view().slice(0, half_bytes_);
}

void PutWindow::arrive() {
  const Communicator::Exchange exchange(ranks_);
  const StreamView stream = exchange.lane.stream;
  if (!kernels_wait()) {
    const auto notes = exchange.meet({"put", {}, {}, {}, recorded(stream), {}, {}});
    for (std::int32_t peer = 0; peer < ranks_.size(); ++peer)
      if (peer != ranks_.rank()) exchange.await(peer, (*notes)[static_cast<std::size_t>(peer)].ready);
  }
  stream.flush();
  if (step_ % steps_between_looks == 0) enqueue_read(stream, late_.buffer, known_late_->data(), sizeof(FaultWord));
}

}  // namespace moecl
