#include <moecl/environment.hpp>

#include <cstdlib>

#include "tools/commands.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {

void add_env(CLI::App& app, Outcome) {
  app.add_subcommand("env", "Every environment variable that is read, with its present value")->callback([] {
    std::vector<Row> rows = {{"variable", "value", "default", "meaning"}};
    const auto add = [&](const EnvironmentVariable& variable) {
      const char* const value = std::getenv(variable.name.data());
      rows.push_back({std::string(variable.name), value != nullptr && *value != '\0' ? value : "-",
                      std::string(variable.fallback), std::string(variable.meaning)});
    };
    for (const EnvironmentVariable& variable : environment_variables) add(variable);
    for (const EnvironmentVariable& variable : command_variables) add(variable);
    fmt::print("{}", table(rows));
  });
}

}  // namespace moecl::cli
