#pragma once
// The words of a command line: which of them are unknown, and what help says about the others.
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace moecl::cli {

/// An option, or a positional argument, as CLI11 parses it.
struct OptionWords {
  std::vector<std::string> names;    ///< "-h", "--help"; none for a positional argument
  std::string value;                 ///< "FILE.json"; empty: a flag
  std::vector<std::string> choices;  ///< all values that it takes; empty: it takes others too
  std::string limits;                ///< "1..256"; empty: none
  std::string about, usual;          ///< its description, and its default; empty: none
  bool list = false;                 ///< several values, separated by commas
  bool many = false;                 ///< a positional argument that may be repeated
  bool required = false;

  bool placed() const { return names.empty(); }
  bool takes_file() const { return value.rfind("FILE", 0) == 0; }
  bool takes_folder() const { return value.rfind("DIR", 0) == 0; }
};
std::vector<OptionWords> options_of(const CLI::App& app);

std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

/// The first word that no command or option took, and perhaps a suggestion; empty if all words were taken. Call it
/// after parsing, whether that failed or not.
std::string unknown_word(const CLI::App& app);

/// The text that `moecl VERB --help` prints.
/// @param verb  empty: a line for each verb
std::string help_of(const CLI::App& app, const std::string& verb);

}  // namespace moecl::cli
