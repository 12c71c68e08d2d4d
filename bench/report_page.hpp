#pragma once
#include <string>
#include <vector>

#include "bench/results.hpp"

namespace moecl::bench {

/// A document of Collector, or of Google Benchmark with the same context, and what people call it.
struct NamedResults {
  std::string name;
  nlohmann::ordered_json document;
};

/// One HTML page without scripts or anything from elsewhere: the devices, what is near its roof and what is not, how
/// the runs compare with the first, each case against its roof, rooflines, the kernels of a layer, how repetitions
/// spread, and every number, as a table and as CSV. Written whole or not at all. Errors: invalid_data  not such a
/// document; io_error
void write_report(const std::string& path, const std::vector<NamedResults>& results);

}  // namespace moecl::bench
