#include <iostream>
#include <memory>

#include "tools/command_line.hpp"
#include "tools/commands.hpp"

namespace moecl::cli {

void add_help(CLI::App& app, Outcome) {
  auto verb = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Say what a command does, as --help after it");
  command->add_option("command", *verb, "empty: all of them in a line each")
      ->check(one_of(command_names(app)))
      ->type_name("COMMAND");
  command->callback([&app, verb] { std::cout << help_of(app, *verb); });
}

}  // namespace moecl::cli
