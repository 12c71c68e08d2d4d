#include "tools/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/nearest.hpp"

namespace moecl::cli {
namespace {

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unknown_word(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string path, words;  // "cache prune: ", "cache prune"
  for (;;) {
    std::vector<std::string> left = command->remaining();
    left.erase(std::remove(left.begin(), left.end(), "--"), left.end());
    if (!left.empty()) {
      const std::vector<std::string> commands = command_names(*command);
      auto wrong = left.begin();
      // What follows a wrong command is perhaps right; a word beside a wrong option is perhaps its value.
      if (commands.empty() && std::any_of(left.begin(), left.end(), is_option))
        wrong = std::find_if(left.begin(), left.end(), is_option);
      const bool option = is_option(*wrong);
      const std::string word = option ? wrong->substr(0, wrong->find('=')) : *wrong;
      if (!option && commands.empty()) return fmt::format("{}'{}' is an argument too many", path, word);
      const std::string meant = did_you_mean(word, option ? option_names(*command) : commands);
      return fmt::format("{}no {} {}{}", path, option ? "option" : "command", word,
                         meant.empty() ? fmt::format("; moecl{} --help lists them", words) : meant);
    }
    const std::vector<CLI::App*> parsed = command->get_subcommands();
    if (parsed.empty()) return {};
    command = parsed.front();
    words += " " + command->get_name();
    path = words.substr(1) + ": ";
  }
}

std::string help_of(const CLI::App& app, const std::string& verb) {
  const CLI::App* of = verb.empty() ? &app : app.get_subcommand(verb);
  return of->get_formatter()->make_help(of, app.get_name() + (verb.empty() ? "" : " " + verb),
                                        CLI::AppFormatMode::Normal);
}

}  // namespace moecl::cli
