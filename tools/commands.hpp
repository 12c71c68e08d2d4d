#pragma once
// The verbs of the `moecl` command. Each add_ function registers a verb's options and its action.
#include <moecl/error.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tools/nearest.hpp"

namespace moecl::cli {

/// Names of quantization schemes.
std::vector<std::string> known_schemes();

/// The exit codes that the command promises.
enum ExitCode : int { done = 0, check_failed = 1, wrong_usage = 2, unusable_input = 3, device_failure = 4 };

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
inline constexpr ExitMeaning exit_codes[] = {{done, "done"},
                                             {check_failed, "a check failed"},
                                             {wrong_usage, "wrong usage"},
                                             {unusable_input, "unusable input, or output that cannot be written"},
                                             {device_failure, "device or communication failure"}};

ExitCode exit_code(ErrorCode code);

/// Prints one line on stderr. A list becomes "head: item; item", and the text is made `printable`.
void report(std::string_view what);

/// The exit code of the verb that ran, which sets it.
using Outcome = int&;

/// Accepts whole numbers of a range only; the error names the range.
inline CLI::Validator whole_number(std::int64_t least, std::int64_t most = INT32_MAX) {
  return CLI::Range(least, most)
      .description(most < INT32_MAX ? fmt::format("{}..{}", least, most) : fmt::format("{}..", least));
}

/// Accepts numbers of a range only; CLI::Range alone also takes "nan".
inline CLI::Validator seconds(double least, double most) {
  const CLI::Validator number(
      [](const std::string& text) { return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : ""; }, "");
  return (CLI::Range(least, most) & number).description(fmt::format("{}..{}", least, most));
}

/// Refuses an empty file name. It would pass for an option that is not given, as when a script's variable is not set.
inline CLI::Validator file_name() {
  return {[](const std::string& text) { return text.empty() ? "expected the name of a file, got an empty one" : ""; },
          ""};
}

/// Accepts these words only; the error names the nearest. Completion and the man page read the words from the
/// validator's description, "{f32,bf16}".
inline CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[words](const std::string& word) {
            const bool known = std::find(words.begin(), words.end(), word) != words.end();
            return known ? std::string()
                         : fmt::format("{} is none of {}{}", word, fmt::join(words, ", "), did_you_mean(word, words));
          },
          fmt::format("{{{}}}", fmt::join(words, ","))};
}

void add_run(CLI::App& app, Outcome outcome);
void add_verify(CLI::App& app, Outcome outcome);
void add_op(CLI::App& app, Outcome outcome);
void add_generate(CLI::App& app, Outcome outcome);
void add_families(CLI::App& app, Outcome outcome);
void add_devices(CLI::App& app, Outcome outcome);
void add_doctor(CLI::App& app, Outcome outcome);
void add_balance(CLI::App& app, Outcome outcome);
void add_bench(CLI::App& app, Outcome outcome);
void add_tune(CLI::App& app, Outcome outcome);
void add_cache(CLI::App& app, Outcome outcome);
void add_env(CLI::App& app, Outcome outcome);
void add_completion(CLI::App& app, Outcome outcome);
void add_man(CLI::App& app, Outcome outcome);
/// Call it after the others, whose names it takes.
void add_help(CLI::App& app, Outcome outcome);

}  // namespace moecl::cli
