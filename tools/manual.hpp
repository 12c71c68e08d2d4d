#pragma once
#include <CLI/CLI.hpp>

#include <string>

namespace moecl::cli {

/// The page of the manual, moecl(1), from the tables that parse.
std::string manual(const CLI::App& app);

}  // namespace moecl::cli
