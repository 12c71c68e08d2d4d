#pragma once
// The words that a command line has: which were not understood, and what help says of the others.
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace moecl::cli {

/// An option, or a word by its place, as CLI11 parses it.
struct OptionWords {
  std::vector<std::string> names;    ///< "-h", "--help"; of a word by its place none
  std::string value;                 ///< "FILE.json"; empty: a flag
  std::vector<std::string> choices;  ///< all values that it takes; empty: others too
  std::string limits;                ///< "1..256"; empty: none
  std::string about, usual;          ///< what it says, and its default; empty: none
  bool list = false;                 ///< values between commas
  bool many = false;                 ///< several words by their places
  bool required = false;

  bool placed() const { return names.empty(); }
  bool takes_file() const { return value.rfind("FILE", 0) == 0; }
  bool takes_folder() const { return value.rfind("DIR", 0) == 0; }
};
std::vector<OptionWords> options_of(const CLI::App& app);

std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

/// The first word that no command or option took, alone, and what was perhaps meant; empty where all were taken.
/// Call it after parsing, whether that failed or not.
std::string unknown_word(const CLI::App& app);

/// What `moecl VERB --help` prints.
/// @param verb  empty: all of them in a line each
std::string help_of(const CLI::App& app, const std::string& verb);

}  // namespace moecl::cli
