#include "dispatch/step_memory.hpp"

namespace moecl {

void StepMemory::begin(BufferView given) {
  given_ = given;
  used_bytes_ = 0;
  next_ = 0;
}

BufferView StepMemory::take(Context& context, std::uint64_t size_bytes) {
  if (given_.handle != nullptr) {
    WorkspaceLayout aligned;
    aligned.add(size_bytes);
    const BufferView range = given_.slice(used_bytes_, size_bytes);
    used_bytes_ += aligned.total_bytes();
    return range;
  }
  if (next_ == kept_.size()) kept_.emplace_back();
  return kept_[next_++].reserve(context, size_bytes);
}

std::uint64_t StepMemory::capacity_bytes() const noexcept {
  std::uint64_t bytes = lasting_.capacity_bytes();
  for (const Workspace& range : kept_) bytes += range.capacity_bytes();
  return bytes;
}

}  // namespace moecl
