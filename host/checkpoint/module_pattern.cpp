#include <moecl/module_pattern.hpp>

#include <algorithm>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::string_view regex_prefix = "re:";
constexpr std::size_t max_regex_characters = 4096;

/// '*' stands for any text. Backtracks to the last '*' only, so time is at most the product of the lengths.
bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// Whether `part` is a run of whole components of the dotted `name`.
bool has_components(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != name.npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

/// libstdc++ does not check the number of a back reference or a repetition for overflow.
constexpr std::ptrdiff_t max_digits = 9;
bool has_long_number(std::string_view text) {
  std::ptrdiff_t digits = 0;
  return std::any_of(text.begin(), text.end(), [&](char c) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    return digits > max_digits;
  });
}

}  // namespace

ModulePattern::ModulePattern(std::string text, const std::string& origin) : text_(std::move(text)) {
  if (text_.compare(0, regex_prefix.size(), regex_prefix) != 0) return;
  if (text_.size() > max_regex_characters)
    fail(ErrorCode::invalid_data, "{}: a regular expression of {} characters, more than {}", origin, text_.size(),
         max_regex_characters);
  if (has_long_number(text_))
    fail(ErrorCode::invalid_data, "{}: \"{}\" has a number of more than {} digits", origin, text_, max_digits);
  try {
    // Polynomial time: a hostile expression must not search for ever.
    regex_ = std::make_shared<const std::regex>(text_.substr(regex_prefix.size()),
                                                std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    fail(ErrorCode::invalid_data, "{}: \"{}\" is no regular expression: {}", origin, text_, error.what());
  }
}

bool ModulePattern::matches(std::string_view module) const {
  if (regex_) return std::regex_search(module.begin(), module.end(), *regex_, std::regex_constants::match_continuous);
  if (text_.find('*') == text_.npos) return has_components(module, text_);
  return matches_wildcards(text_, module) || matches_wildcards(text_ + ".*", module);
}

bool ModulePattern::occurs_in(std::string_view module) const { return module.find(text_) != module.npos; }

}  // namespace moecl
