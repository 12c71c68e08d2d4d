#include <moecl/environment.hpp>

#include "tools/commands.hpp"
#include "tools/table.hpp"

namespace moecl::cli {

void add_env(CLI::App& app, Outcome) {
  app.add_subcommand("env", "Every environment variable that is read, with its present value")->callback([] {
    std::vector<Row> rows = {{"variable", "value", "default", "meaning"}};
    for (const EnvironmentVariable& variable : environment_variables)
      rows.push_back({std::string(variable.name), environment(variable.name).value_or("-"),
                      std::string(variable.fallback), std::string(variable.meaning)});
    fmt::print("{}", table(rows));
  });
}

}  // namespace moecl::cli
