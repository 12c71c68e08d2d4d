#include "tools/completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/command_line.hpp"
#include "tools/shell_text.hpp"

namespace moecl::cli {
namespace {

/// Calls `visit(path, app)` for the app and the commands below it; path: "", " cache", " cache prune".
template <class Visit>
void visit_commands(const CLI::App& app, const std::string& path, const Visit& visit) {
  visit(path, app);
  for (const CLI::App* command : commands_of(app)) visit_commands(*command, path + " " + command->get_name(), visit);
}

// --- zsh -------------------------------------------------------------------------------------------------------------

std::string without_brackets(const std::string& text) {
  return replaced(replaced(replaced(text, '\\', "\\\\"), '[', "\\["), ']', "\\]");
}

/// The action that completes a value: "_files", "(f32 bf16)", "_sequence compadd - f32 bf16".
std::string zsh_action(const OptionWords& words) {
  const std::string choices = fmt::format("{}", fmt::join(words.choices, " "));
  if (!words.choices.empty()) return words.list ? "_sequence compadd - " + choices : "(" + choices + ")";
  return words.takes_folder() ? "_files -/" : words.takes_file() || words.list ? "_files" : " ";
}

/// An argument of zsh's _arguments: '--dtype[storage]:TEXT:(f32 bf16)'.
std::string zsh_argument(const OptionWords& words, const std::string& name) {
  const std::string message = replaced(words.value, ':', "\\:");
  if (words.placed()) return quoted(fmt::format("{}:{}:{}", words.many ? "*" : "1", message, zsh_action(words)));
  return quoted(fmt::format("{}[{}]", name, without_brackets(words.about)) +
                (words.value.empty() ? "" : fmt::format(":{}:{}", message, zsh_action(words))));
}

// --- fish ------------------------------------------------------------------------------------------------------------

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

std::string fish_option(const OptionWords& words) {
  std::string text;
  for (const std::string& name : words.names)
    text += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  const std::string choices = fmt::format("{}", fmt::join(words.choices, " "));
  if (!words.choices.empty())
    text +=
        (words.placed() ? " -a " : " -x -a ") + fish_quoted(words.list ? "(__fish_append , " + choices + ")" : choices);
  else if (words.placed() || !words.value.empty())
    text += words.placed() ? " -F" : words.takes_file() || words.takes_folder() || words.list ? " -r -F" : " -x";
  return text + " -d " + fish_quoted(words.about);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> paths;
  std::string values, words;
  visit_commands(app, "", [&](const std::string& path, const CLI::App& command) {
    if (!path.empty()) paths.push_back(quoted(path));
    std::vector<std::string> options, others = command_names(command);
    for (const OptionWords& option : options_of(command)) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.placed()) others.insert(others.end(), option.choices.begin(), option.choices.end());
      for (const std::string& name : option.names)
        if (!option.value.empty())
          values +=
              fmt::format("    {}) words={}{} ;;\n", quoted(fmt::format("{} {}", path, name)),
                          quoted(fmt::format("{}", fmt::join(option.choices, " "))), option.list ? " list=1" : "");
    }
    words += fmt::format("        {}) options={} words={} ;;\n", quoted(path),
                         quoted(fmt::format("{}", fmt::join(options, " "))),
                         quoted(fmt::format("{}", fmt::join(others, " "))));
  });
  return fmt::format(R"(# Completion of moecl for bash, written by `moecl completion bash`.
_moecl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} i
  local command='' options='' words='' list='' lead=''
  COMPREPLY=()
  # bash takes --option=value for three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {}) command+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command $before" in
{}    *)
      case $command in
{}      esac
      [[ $word != -* ]] || words=$options
      ;;
  esac
  if [[ $list && $word == *,* ]]; then
    lead=${{word%,*}},
    word=${{word##*,}}
  fi
  mapfile -t COMPREPLY < <(compgen -P "$lead" -W "$words" -- "$word")
}}
complete -o default -F _moecl moecl
)",
                     fmt::join(paths, " | "), values, words);
}

std::string zsh_completion(const CLI::App& app) {
  std::string functions;
  visit_commands(app, "", [&](const std::string& path, const CLI::App& command) {
    std::string arguments, below;
    for (const OptionWords& option : options_of(command)) {
      if (option.placed()) arguments += " \\\n    " + zsh_argument(option, "");
      for (const std::string& name : option.names) arguments += " \\\n    " + zsh_argument(option, name);
    }
    const std::string function = "_moecl" + replaced(path, ' ', "_");
    for (const CLI::App* one : commands_of(command))
      below += " \\\n        " + quoted(one->get_name() + ":" + one->get_description());
    if (below.empty()) {
      functions += fmt::format("{}() {{\n  _arguments -s{}\n}}\n\n", function, arguments);
      return;
    }
    functions += fmt::format(R"({0}() {{
  local state
  local -a line
  _arguments -C{1} \
    '1:command:->command' '*::argument:->argument'
  case $state in
    command)
      local -a commands=({2})
      _describe command commands
      ;;
    argument) (( ! $+functions[{0}_$line[1]] )) || {0}_$line[1] ;;
  esac
}}

)",
                             function, arguments, below);
  });
  return fmt::format(
      "#compdef moecl\n# Completion of moecl for zsh, written by `moecl completion zsh`.\n\n{}_moecl \"$@\"\n",
      functions);
}

std::string fish_completion(const CLI::App& app) {
  std::string text = "# Completion of moecl for fish, written by `moecl completion fish`.\ncomplete -c moecl -f\n";
  visit_commands(app, "", [&](const std::string& path, const CLI::App& command) {
    std::string seen;  // condition: the commands of `path` are there, and none below them
    for (const std::string& name : CLI::detail::split(path.substr(path.empty() ? 0 : 1), ' '))
      if (!name.empty()) seen += fmt::format("{}__fish_seen_subcommand_from {}", seen.empty() ? "" : "; and ", name);
    const std::vector<std::string> below = command_names(command);
    if (!below.empty())
      seen += fmt::format("{}not __fish_seen_subcommand_from {}", seen.empty() ? "" : "; and ", fmt::join(below, " "));
    const std::string begin = fmt::format("complete -c moecl -n {}", fish_quoted(seen));
    for (const CLI::App* one : commands_of(command))
      text += fmt::format("{} -a {} -d {}\n", begin, one->get_name(), fish_quoted(one->get_description()));
    for (const OptionWords& option : options_of(command)) text += begin + fish_option(option) + "\n";
  });
  return text;
}

}  // namespace moecl::cli
