#include "tests/runtime/allocations.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local std::uint64_t allocations = 0, failing = 0;  // failing: number of the one to fail; 0: none
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static constexpr bool own = false;
#else
static constexpr bool own = true;
void* operator new(std::size_t size) {
  ++allocations;
  if (allocations == failing) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace moecl::test {

std::uint64_t Allocations::so_far() { return allocations; }

FailingAllocation::FailingAllocation(std::uint64_t nth) { failing = allocations + nth; }
FailingAllocation::~FailingAllocation() { failing = 0; }
bool FailingAllocation::failed() const { return allocations >= failing; }
bool FailingAllocation::is_possible() { return own; }

}  // namespace moecl::test
