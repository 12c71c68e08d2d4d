#pragma once
// Scripts by which shells complete what is typed, from the tables that parse it.
#include <CLI/CLI.hpp>

#include <string>

namespace moecl::cli {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace moecl::cli
