#pragma once
// The words that a command line has: which were not understood, and what help says of the others.
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace moecl::cli {

/// Names of an app's commands, and of its options with their dashes.
std::vector<std::string> command_names(const CLI::App& app);
std::vector<std::string> option_names(const CLI::App& app);

/// The first word that no command or option took, alone, and what was perhaps meant; empty where all were taken.
/// Call it after parsing, whether that failed or not.
std::string unknown_word(const CLI::App& app);

/// What `moecl VERB --help` prints.
/// @param verb  empty: all of them in a line each
std::string help_of(const CLI::App& app, const std::string& verb);

}  // namespace moecl::cli
