#pragma once
#include <string>

#include "bench/report_rows.hpp"

namespace moecl::bench {

/// RFC 4180. One line per benchmark and run: the run, its device, the benchmark, the median, least, most and all
/// repetitions in microseconds, then a column for each counter of any benchmark.
std::string csv(const std::vector<Run>& runs);
/// The text as a data: URL.
std::string data_url(const std::string& media_type, const std::string& text);

}  // namespace moecl::bench
