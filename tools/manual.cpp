#include "tools/manual.hpp"

#include <moecl/environment.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/command_line.hpp"
#include "tools/commands.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

/// Escapes text, so that roff shows it as it is.
std::string plain(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  // roff would take a line that begins so as a request.
  return !shown.empty() && (shown.front() == '.' || shown.front() == '\'') ? "\\&" + shown : shown;
}
std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

/// A paragraph that hangs from its head.
std::string paragraph(const std::string& head, const std::string& about) {
  return fmt::format(".TP\n{}\n{}\n", head, about);
}

std::string option_paragraph(const OptionWords& words) {
  std::vector<std::string> names;
  for (const std::string& name : words.names) names.push_back(bold(name));
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (!words.value.empty()) head += (head.empty() ? "" : " ") + italic(words.value);
  std::string about = plain(words.about);
  const auto add = [&](const std::string& sentence) { about += (about.empty() ? "" : ".\n") + sentence; };
  if (!words.choices.empty())
    add(plain(fmt::format("{} {}", words.list ? "Some of" : "One of", fmt::join(words.choices, ", "))));
  if (const std::size_t dots = words.limits.find(".."); dots != std::string::npos) {
    const std::string least = words.limits.substr(0, dots), most = words.limits.substr(dots + 2);
    add(plain(most.empty() ? "At least " + least : least + " to " + most));
  }
  if (!words.usual.empty()) add(plain("Default: " + words.usual));
  return paragraph(head, about + ".");
}

std::string synopsis(const std::string& name, const CLI::App& command) {
  std::string text = bold(name);
  if (!commands_of(command).empty()) text += " " + italic("COMMAND");
  text += " [" + italic("OPTIONS") + "]";
  for (const OptionWords& words : options_of(command))
    if (words.placed())
      text +=
          fmt::format(fmt::runtime(words.required ? " {}{}" : " [{}{}]"), italic(words.value), words.many ? "..." : "");
  return text;
}

/// The section of a command and of the commands below it.
std::string command_section(const std::string& name, const CLI::App& command) {
  std::string text =
      fmt::format(".SS {}\n{}\n.PP\n{}.\n", plain(name), synopsis(name, command), plain(command.get_description()));
  for (const OptionWords& words : options_of(command))
    if (words.names != std::vector<std::string>{"-h", "--help"}) text += option_paragraph(words);
  for (const CLI::App* below : commands_of(command)) text += command_section(name + " " + below->get_name(), *below);
  return text;
}

}  // namespace

std::string manual(const CLI::App& app) {
  std::string commands, exits, variables;
  for (const CLI::App* command : commands_of(app))
    commands += command_section("moecl " + command->get_name(), *command);
  for (const auto& [code, meaning] : exit_codes) exits += paragraph(bold(std::to_string(code)), plain(meaning) + ".");
  const auto add = [&](const EnvironmentVariable& variable) {
    variables += paragraph(bold(variable.name),
                           fmt::format("{}.\nDefault: {}.", plain(variable.meaning), plain(variable.fallback)));
  };
  for (const EnvironmentVariable& variable : environment_variables) add(variable);
  for (const EnvironmentVariable& variable : command_variables) add(variable);
  std::string options;
  for (const OptionWords& words : options_of(app)) options += option_paragraph(words);
  return fmt::format(R"(.\" Written by `moecl man`.
.TH MOECL 1 "" "moecl {}" "User Commands"
.SH NAME
moecl \- run, check and measure Mixture\-of\-Experts layers on OpenCL devices
.SH SYNOPSIS
{}
.SH DESCRIPTION
moecl runs Mixture\-of\-Experts layers of large language models on any OpenCL 1.2 device.
A router picks a few experts for each token, and only those compute.
Results go to stdout, messages and progress to stderr.
.SH OPTIONS
{}.SH COMMANDS
{}.SH EXIT STATUS
{}.SH ENVIRONMENT
{})",
                     plain(MOECL_VERSION), synopsis("moecl", app), options, commands, exits, variables);
}

}  // namespace moecl::cli
