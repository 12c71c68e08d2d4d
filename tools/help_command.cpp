#include <iostream>
#include <memory>

#include "tools/command_line.hpp"
#include "tools/commands.hpp"
#include "tools/completion.hpp"
#include "tools/manual.hpp"

namespace moecl::cli {

void add_help(CLI::App& app, Outcome) {
  auto verb = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Say what a command does, as --help after it");
  command->add_option("command", *verb, "empty: all of them in a line each")
      ->check(one_of(command_names(app)))
      ->type_name("COMMAND");
  command->callback([&app, verb] { std::cout << help_of(app, *verb); });
}

void add_completion(CLI::App& app, Outcome) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Write the script by which a shell completes moecl's words");
  command->add_option("shell", *shell, "the shell")->check(one_of({"bash", "zsh", "fish"}))->required();
  command->callback([&app, shell] {
    std::cout << (*shell == "bash"  ? bash_completion(app)
                  : *shell == "zsh" ? zsh_completion(app)
                                    : fish_completion(app));
  });
}

void add_man(CLI::App& app, Outcome) {
  app.add_subcommand("man", "Write the page of the manual: moecl man | man -l -")->callback([&app] {
    std::cout << manual(app);
  });
}

}  // namespace moecl::cli
