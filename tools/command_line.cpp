#include "tools/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/nearest.hpp"

namespace moecl::cli {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const OptionWords& words : options_of(app)) names.insert(names.end(), words.names.begin(), words.names.end());
  return names;
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

}  // namespace

std::vector<OptionWords> options_of(const CLI::App& app) {
  std::vector<OptionWords> all;
  for (const CLI::Option* option : app.get_options()) {
    OptionWords words;
    for (const std::string& name : option->get_snames()) words.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) words.names.push_back("--" + name);
    const std::string type = option->get_type_name();  // "TEXT:{f32,bf16}", "INT:1..256"
    const std::size_t colon = std::min(type.find(':'), type.size());
    if (option->get_items_expected_max() > 0)
      words.value = words.placed() ? option->get_name(true) : type.substr(0, colon);
    const std::string kind = type.substr(0, colon), checked = type.substr(std::min(colon + 1, type.size()));
    if (words.placed() && (kind.rfind("FILE", 0) == 0 || kind.rfind("DIR", 0) == 0)) words.value = kind;
    if (!checked.empty() && checked.front() == '{')
      words.choices = CLI::detail::split(checked.substr(1, checked.size() - 2), ',');
    else
      words.limits = checked;
    words.about = option->get_description();
    words.usual = option->get_default_str();
    words.list = option->get_delimiter() != '\0';
    words.many = words.placed() && option->get_items_expected_max() > 1;
    words.required = option->get_required();
    all.push_back(std::move(words));
  }
  return all;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
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
      // A word after a wrong command may be right; a word beside a wrong option may be the option's value.
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
