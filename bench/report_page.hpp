#pragma once
#include <string>

#include "bench/results.hpp"

namespace moecl::bench {

/// One HTML page without anything from elsewhere: the device, the roofline, each implementation against the roof, time
/// by kernel, scaling with the tokens, and every number. Written whole or not at all.
/// Errors: io_error
void write_report(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace moecl::bench
