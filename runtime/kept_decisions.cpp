#include "runtime/kept_decisions.hpp"

#include <xxhash.h>

#include <algorithm>

namespace moecl {

void DecisionForm::add_value(const TensorView& view) noexcept {
  const auto dtype = static_cast<std::uint64_t>(view.dtype), rank = static_cast<std::uint64_t>(view.rank);
  if (!view.present()) return add(~std::uint64_t{0});
  add(dtype | rank << 8U | view.buffer.offset_bytes % alignment << 16U);
  for (std::size_t d = 0; d < rank; ++d) {
    add(static_cast<std::uint64_t>(view.shape[d]));
    add(static_cast<std::uint64_t>(view.stride[d]));
  }
}

bool DecisionForm::operator==(const DecisionForm& other) const noexcept {
  return count_ == other.count_ && std::equal(words_.begin(), words_.begin() + count_, other.words_.begin());
}

std::size_t DecisionForm::hash() const noexcept { return XXH3_64bits(words_.data(), count_ * sizeof words_[0]); }

std::uint64_t KeptDecisions::made() const noexcept {
  const std::lock_guard lock(mutex_);
  return made_;
}

std::size_t KeptDecisions::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::shared_ptr<const void> KeptDecisions::find(const DecisionForm& form) const {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(form);
  return found == kept_.end() ? nullptr : found->second;
}

void KeptDecisions::keep(const DecisionForm& form, std::shared_ptr<const void> decision) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= most) kept_.clear();
  kept_.insert_or_assign(form, std::move(decision));
  ++made_;
}

}  // namespace moecl
