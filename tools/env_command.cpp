#include <moecl/environment.hpp>

#include <cstdlib>

#include "tools/commands.hpp"
#include "tools/printable.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {

void add_env(CLI::App& app, Outcome) {
  app.add_subcommand("env", "Every environment variable that is read, with its present value")->callback([] {
    const auto print = [](const EnvironmentVariable& variable) {
      const char* const value = std::getenv(variable.name.data());
      fmt::print("{:<22}  {}\n", variable.name, value != nullptr && *value != '\0' ? printable(value) : "-");
      for (const std::string& line : wrapped(fmt::format("{}; unset: {}", variable.meaning, variable.fallback), 76))
        fmt::print("    {}\n", line);
    };
    for (const EnvironmentVariable& variable : environment_variables) print(variable);
    for (const EnvironmentVariable& variable : command_variables) print(variable);
  });
}

}  // namespace moecl::cli
