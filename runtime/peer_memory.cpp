#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/peer_memory.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "runtime/child_process.hpp"
#include "runtime/external_memory.hpp"
#include "runtime/peer_probe.hpp"

namespace moecl {
namespace {

/// Both buffers must be one memory: an import of other memory would later give wrong results. Stops the host.
void expect_one_memory(StreamView owner, const Buffer& owned, StreamView user, const Buffer& seen) {
  static std::atomic<std::uint64_t> tags{0x6d6f6563ULL << 32};
  const std::uint64_t tag = ++tags;
  std::uint64_t found = 0;
  // On queues of their own: the streams' queues may be waiting for this very thread.
  write_blocking(Stream::beside(owner, false), owned.view(), &tag, sizeof(tag));
  read_blocking(Stream::beside(user, false), seen.view(), &found, sizeof(found));
  if (found != tag)
    throw Error(ErrorCode::device_error, "peer memory: '" + user.device->caps.name +
                                             "' sees other memory than the one that was allocated for it");
}

class NvPeerMemory final : public PeerMemory {
 public:
  explicit NvPeerMemory(std::vector<StreamView> streams) : streams_(std::move(streams)) {}

  std::string reject(StreamView owner, StreamView user) override {
    for (const StreamView& stream : {owner, user})
      if (stream.device->caps.nv_compute_capability == 0)
        return "'" + stream.device->caps.name + "' is no NVIDIA device";
    try {
      if (std::string why = driver().reject(*owner.device, *user.device); !why.empty()) return why;
      return verdict_on(device_uuid(*owner.device), device_uuid(*user.device));
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users,
                               std::uint64_t size_bytes) override {
    std::vector<Buffer> views = driver().allocate(owner, users, size_bytes);
    for (std::size_t i = 0; i < users.size(); ++i) expect_one_memory(owner, views.front(), users[i], views[i + 1]);
    return views;
  }

  std::uint64_t max_bytes() const noexcept override { return ExternalMemory::max_bytes; }
  bool kernels_may_wait() const noexcept override { return true; }

 private:
  const ExternalMemory& driver() {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_.emplace();
    return *driver_;
  }

  std::string verdict_on(const std::string& owner, const std::string& user) {
    const std::lock_guard lock(mutex_);
    if (!verdicts_) {
      std::vector<std::string> uuids;
      for (const StreamView& stream : streams_)
        if (stream.device->caps.nv_compute_capability != 0)
          if (std::string uuid = device_uuid(*stream.device);
              std::find(uuids.begin(), uuids.end(), uuid) == uuids.end())
            uuids.push_back(std::move(uuid));
      verdicts_ = peer_probe::of_devices(uuids, helper_program());
    }
    const auto found = verdicts_->find({owner, user});
    return found != verdicts_->end() ? found->second : "the probe did not try this pair";
  }

  std::vector<StreamView> streams_;
  std::mutex mutex_;
  std::optional<ExternalMemory> driver_;
  std::optional<peer_probe::Verdicts> verdicts_;
};

}  // namespace

std::shared_ptr<PeerMemory> driver_peer_memory(std::vector<StreamView> streams) {
  return std::make_shared<NvPeerMemory>(std::move(streams));
}

}  // namespace moecl
