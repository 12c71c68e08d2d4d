#include <iostream>

#include "tools/commands.hpp"
#include "tools/families_page.hpp"

namespace moecl::cli {

void add_families(CLI::App& app, Outcome) {
  auto page = std::make_shared<bool>(false), schemes = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("families", "Name the model types that can be read");
  command->add_flag("--page", *page, "write the page about them (FAMILIES.md)");
  command->add_flag("--schemes", *schemes, "write the table of families and quantization schemes");
  command->callback([page, schemes] {
    std::cout << (*page ? families_page() : *schemes ? schemes_table() : families_list());
  });
}

}  // namespace moecl::cli
