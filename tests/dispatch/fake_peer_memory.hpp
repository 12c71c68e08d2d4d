#pragma once
// A fake of peer memory that works on any device: an ordinary buffer of the context that all ranks share.
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/peer_memory.hpp>

namespace moecl::test {

class FakePeerMemory final : public PeerMemory {
 public:
  explicit FakePeerMemory(std::uint64_t most = std::uint64_t{1} << 30) : most_(most) {}

  std::string reject(StreamView owner, StreamView user) override {
    return owner.context == user.context ? "" : "the fake needs one context";
  }
  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users,
                               std::uint64_t size_bytes) override {
    if (size_bytes > most_) throw Error(ErrorCode::invalid_argument, "the fake has not so much memory");
    std::vector<Buffer> views;
    views.emplace_back(*owner.context, size_bytes);
    for (std::size_t i = 0; i < users.size(); ++i) views.push_back(Buffer::borrow(views.front().handle()));
    return views;
  }
  std::uint64_t max_bytes() const noexcept override { return most_; }
  /// False: waiting kernels could keep all workers of a CPU busy.
  bool kernels_may_wait() const noexcept override { return false; }

 private:
  std::uint64_t most_;
};

}  // namespace moecl::test
