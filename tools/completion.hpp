#pragma once
// Completion scripts for shells, made from the tables that parse the command line.
#include <CLI/CLI.hpp>

#include <string>

namespace moecl::cli {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace moecl::cli
