#pragma once
// Large pages for buffers that a CPU reads in long runs.
#include <moecl/cl_handles.hpp>

#include <cstdint>

namespace moecl {

class Context;

/// Asks Linux (madvise) to keep a new buffer in pages of 2 MiB. A processor's prefetchers stop at the end of a page, so
/// one core reads 4 KiB pages at about two thirds of the rate. This is only advice: it has no effect on buffers of less
/// than a few such pages, on devices other than CPUs, and on systems without such pages. Must come before the first
/// write, which allocates the pages.
void advise_huge_pages(const Context& context, _cl_mem* buffer, std::uint64_t size_bytes);

}  // namespace moecl
