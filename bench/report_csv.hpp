#pragma once
#include <string>

#include "bench/report_rows.hpp"

namespace moecl::bench {

/// RFC 4180, a line for each benchmark of each run: where, which, median, least and most of the repetitions and all of
/// them in microseconds, then a column for each counter of any.
std::string csv(const std::vector<Run>& runs);
/// The text as a data: URL.
std::string data_url(const std::string& media_type, const std::string& text);

}  // namespace moecl::bench
