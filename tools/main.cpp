#include <moecl/error.hpp>

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "tools/command_line.hpp"
#include "tools/commands.hpp"
#include "tools/launch.hpp"
#include "tools/printable.hpp"
#include "tools/version.hpp"

namespace moecl::cli {

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return wrong_usage;
    case ErrorCode::unsupported:
    case ErrorCode::invalid_data:
    case ErrorCode::io_error:
      return unusable_input;
    default:
      return device_failure;
  }
}

void report(std::string_view what) {
  std::string line;
  bool indent = false;
  for (const char c : what) {
    if (c == '\n' && !line.empty() && !indent) line += line.back() == ':' ? " " : "; ";
    indent = c == '\n' || (indent && c == ' ');
    if (!indent) line += c;
  }
  fmt::print(stderr, "moecl: {}\n", printable(line));
}

}  // namespace moecl::cli

namespace {

using namespace moecl;
using cli::report;

/// Runs the verb that the arguments name.
int run_verb(int argc, char** argv) {
  CLI::App app("moecl: Mixture-of-Experts layers on OpenCL devices", "moecl");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", cli::version, "Print versions of moecl, the OpenCL loader and drivers, and exit");
  std::string footer = "Exit codes:";
  for (const auto& [code, meaning] : cli::exit_codes) footer += fmt::format("\n  {}  {}", int{code}, meaning);
  app.footer(footer);
  int outcome = cli::done;
  cli::add_run(app, outcome);
  cli::add_verify(app, outcome);
  cli::add_op(app, outcome);
  cli::add_generate(app, outcome);
  cli::add_families(app, outcome);
  cli::add_devices(app, outcome);
  cli::add_doctor(app, outcome);
  cli::add_balance(app, outcome);
  cli::add_bench(app, outcome);
  cli::add_tune(app, outcome);
  cli::add_cache(app, outcome);
  cli::add_env(app, outcome);
  cli::add_completion(app, outcome);
  cli::add_man(app, outcome);
  cli::add_help(app, outcome);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("a command (moecl --help lists them)");
  } catch (const CLI::ParseError& error) {
    const std::string unknown = cli::unknown_word(app);  // before CLI11's message, which speaks of all the words
    const bool wrong = error.get_exit_code() != 0;
    if (wrong || (!unknown.empty() && app.get_subcommands().empty())) {
      if (!cli::told_elsewhere(cli::wrong_usage, {})) report(unknown.empty() ? error.what() : unknown);
      return cli::wrong_usage;
    }
    app.exit(error);  // prints the help
  } catch (const Error& error) {
    const cli::ExitCode code = cli::exit_code(error.code());
    if (!cli::told_elsewhere(code, error.what())) report(error.what());
    return code;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) == 0) {  // otherwise a failed fmt::print threw it
      report(error.what());
      return cli::device_failure;
    }
  }
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    report("stdout: the results cannot be written");
    return cli::unusable_input;
  }
  return outcome;
}

/// Allocates no memory.
int report_out_of_memory() {
  std::fputs("moecl: out of host memory\n", stderr);
  return cli::device_failure;
}

/// Some destructors allocate memory but may not throw: nlohmann's JSON gathers the children first. Out of memory there
/// ends in terminate, which this function turns into a message.
void end_in_words() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    std::_Exit(report_out_of_memory());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_in_words);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails instead of ending the process
  try {
    return run_verb(argc, argv);
  } catch (const std::bad_alloc&) {
    return report_out_of_memory();
  } catch (const std::exception&) {  // stderr itself could not be written
    return cli::device_failure;
  }
}
