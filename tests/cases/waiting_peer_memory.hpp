#pragma once
// Peer memory for put windows on a single device.
#include <moecl/error.hpp>
#include <moecl/opencl.hpp>
#include <moecl/peer_memory.hpp>

#include <cstdlib>
#include <mutex>

namespace moecl::test {

/// Host memory that a CPU's kernels reach from several contexts. Kernels may wait for each other if fewer wait than the
/// device has workers. On PoCL they may not within one context, where launches of a kernel take turns.
class WaitingPeerMemory final : public PeerMemory {
 public:
  std::string reject(StreamView owner, StreamView user) override {
    return owner.device->handle == user.device->handle ? "" : "other devices";
  }
  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users, std::uint64_t bytes) override {
    constexpr std::size_t page = 4096;
    const std::lock_guard lock(mutex_);
    void* const memory =
        memory_.emplace_back(std::aligned_alloc(page, (bytes + page - 1) / page * page), std::free).get();
    std::vector<Buffer> views;
    for (std::size_t i = 0; i <= users.size(); ++i) {
      cl_int status = CL_SUCCESS;
      cl_mem view = clCreateBuffer((i == 0 ? owner : users[i - 1]).context->handle(),
                                   CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, memory, &status);
      if (status != CL_SUCCESS) throw Error(ErrorCode::out_of_memory, "no view of host memory");
      views.push_back(Buffer::borrow(view));
      clReleaseMemObject(view);
    }
    return views;
  }
  std::uint64_t max_bytes() const noexcept override { return std::uint64_t{64} << 20; }
  bool kernels_may_wait() const noexcept override { return true; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace moecl::test
