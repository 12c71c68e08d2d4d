#pragma once
#include <string>
#include <vector>

#include "bench/results.hpp"

namespace moecl::bench {

/// A document of Collector, or of Google Benchmark with the same context, and its name for people.
struct NamedResults {
  std::string name;
  nlohmann::ordered_json document;
};

/// Writes one HTML page without scripts or external resources: the devices, the cases near their roof and far from it,
/// each run against the first, each case against its roof, rooflines, the kernels of a layer, the spread of
/// repetitions, and every number, as a table and as CSV. Writes all of it or nothing. Errors: invalid_data  not such a
/// document; io_error
void write_report(const std::string& path, const std::vector<NamedResults>& results);

}  // namespace moecl::bench
