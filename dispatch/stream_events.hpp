#pragma once
// Events between the streams of ranks.
#include <moecl/stream.hpp>

#include <memory>
#include <vector>

namespace moecl {

/// An event that others will wait for.
std::shared_ptr<const Event> recorded(StreamView stream);
void wait_on_stream(StreamView stream, const std::vector<_cl_event*>& events);

}  // namespace moecl
