#include <moecl/context.hpp>

namespace moecl {

void Context::keep_failed(Event event) {
  const std::lock_guard lock(failed_mutex_);
  failed_.push_back(std::move(event));
}

}  // namespace moecl
