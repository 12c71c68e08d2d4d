#include <iostream>

#include "tools/commands.hpp"
#include "tools/families_page.hpp"

namespace moecl::cli {

void add_families(CLI::App& app, Outcome) {
  auto page = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("families", "Name the model types that can be read");
  command->add_flag("--page", *page, "write the page about them (FAMILIES.md)");
  command->callback([page] { std::cout << (*page ? families_page() : families_list()); });
}

}  // namespace moecl::cli
