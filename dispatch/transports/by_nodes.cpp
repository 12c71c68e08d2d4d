#include "dispatch/transports/by_nodes.hpp"

#include <moecl/error.hpp>

#include <algorithm>

#include "dispatch/processes/group_memory.hpp"
#include "dispatch/processes/patience.hpp"
#include "dispatch/transports/shared_memory.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Bytes travel by the link of each pair. MPI alone decides who is alive and why the group ends.
class LinkByNodes final : public Link {
 public:
  LinkByNodes(std::unique_ptr<Link> mpi, std::unique_ptr<Link> near, std::vector<std::int32_t> number_on_node)
      : mpi_(std::move(mpi)), near_(std::move(near)), number_(std::move(number_on_node)) {}

  TransportKind kind(std::int32_t from, std::int32_t to) const noexcept override {
    const std::vector<std::int32_t> node_of = nodes();
    return node_of[static_cast<std::size_t>(from)] == node_of[static_cast<std::size_t>(to)]
               ? TransportKind::shared_memory
               : TransportKind::mpi;
  }
  std::int32_t rank() const noexcept override { return mpi_->rank(); }
  std::int32_t size() const noexcept override { return mpi_->size(); }
  const std::vector<std::int32_t>& places() const noexcept override { return mpi_->places(); }
  std::vector<std::int32_t> nodes() const override { return mpi_->nodes(); }

  std::span<std::byte> room(Channel channel, std::int32_t peer) override {
    const auto [link, number] = way(peer);
    return link->room(channel, number);
  }
  void send(Channel channel, std::int32_t peer, std::size_t bytes) override {
    const auto [link, number] = way(peer);
    link->send(channel, number, bytes);
    patience_.moved(channel);
  }
  std::span<const std::byte> arrived(Channel channel, std::int32_t peer) override {
    const auto [link, number] = way(peer);
    return link->arrived(channel, number);
  }
  void take(Channel channel, std::int32_t peer, std::size_t bytes) override {
    const auto [link, number] = way(peer);
    link->take(channel, number, bytes);
    patience_.moved(channel);
  }
  bool may_read(std::int32_t peer) const noexcept override {
    const auto [link, number] = way(peer);
    return link->may_read(number);
  }
  bool read(std::int32_t peer, std::uint64_t address, std::span<std::byte> to) override {
    const auto [link, number] = way(peer);
    return link->read(number, address, to);
  }
  bool settled(Channel channel) override { return mpi_->settled(channel); }
  std::uint32_t bell(Channel channel) noexcept override { return near_->bell(channel); }
  /// MPI has no bell, so a rank with peers on other nodes has to poll.
  void rest(Channel channel, std::uint32_t heard) noexcept override {
    near_->size() == mpi_->size() ? near_->rest(channel, heard) : patience_.rest(channel);
  }

  void in_phase(std::string_view what) noexcept override { mpi_->in_phase(what); }
  std::string describe(std::int32_t peer) const override { return mpi_->describe(peer); }
  bool has_left(std::int32_t peer) const noexcept override { return mpi_->has_left(peer); }
  std::vector<std::int32_t> silent() const override { return mpi_->silent(); }
  void give_up(const std::vector<std::int32_t>& peers) noexcept override { mpi_->give_up(peers); }
  std::string end(std::string_view cause) override { return mpi_->end(cause); }
  std::string ended() const override { return mpi_->ended(); }
  std::string look() override { return mpi_->look(); }
  Links regroup(bool everyone, std::chrono::milliseconds deadline) override {
    return mpi_->regroup(everyone, deadline);
  }

 private:
  /// The link to a peer, and the peer's number in that link.
  std::pair<Link*, std::int32_t> way(std::int32_t peer) const {
    const std::int32_t number = number_[static_cast<std::size_t>(peer)];
    return number < 0 ? std::pair(mpi_.get(), peer) : std::pair(near_.get(), number);
  }

  std::unique_ptr<Link> mpi_, near_;
  Patience patience_;
  std::vector<std::int32_t> number_;  ///< of each rank among those of this node; -1: on another node
};

}  // namespace

Links links_by_nodes(Links mpi, const std::string& name, std::chrono::milliseconds deadline) {
  const Link& first = *mpi.front();
  const std::vector<std::int32_t> nodes = first.nodes();
  const std::int32_t here = nodes[static_cast<std::size_t>(first.rank())];
  std::vector<std::int32_t> numbers, own;
  std::int32_t near = 0;
  for (const std::int32_t node : nodes) numbers.push_back(node == here ? near++ : -1);
  if (static_cast<std::size_t>(near) == mpi.size()) return mpi;
  for (const auto& link : mpi) own.push_back(numbers[static_cast<std::size_t>(link->rank())]);
  try {
    Links memory = links_by_shared_memory(name, own, near, deadline);
    GroupMemory::remove(name);  // all have joined, and no process joins later
    Links both;
    for (std::size_t i = 0; i < mpi.size(); ++i)
      both.push_back(std::make_unique<LinkByNodes>(std::move(mpi[i]), std::move(memory[i]), numbers));
    return both;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("mpi: the ranks of a node do not share memory, which transport mpi does "
                                          "without: {}",
                                          error.what()));
  }
}

}  // namespace moecl
