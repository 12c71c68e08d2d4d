#pragma once
#include <CLI/CLI.hpp>

#include <string>

namespace moecl::cli {

/// The manual page moecl(1), from the tables that parse the command line.
std::string manual(const CLI::App& app);

}  // namespace moecl::cli
