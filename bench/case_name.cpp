#include "bench/case_name.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace moecl::bench {
namespace {

std::string joined(const std::string& text, const std::string& part) { return text.empty() ? part : text + " " + part; }

bool numbered(const std::string& part) { return part.find(':') != std::string::npos; }

/// The longest beginning of the text that is all digits, or that has none.
std::string_view first_piece(std::string_view text) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t size = 1;
  while (size < text.size() && digit(text[size]) == digit(text[0])) ++size;
  return text.substr(0, size);
}

}  // namespace

CaseName::CaseName(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t slash = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, slash - begin));
    begin = slash + 1;
  }
  if (parts.size() > 2 && !numbered(parts.back()) && numbered(parts[parts.size() - 2])) {
    implementation = parts.back();
    parts.pop_back();
  }
  what = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::string& text = numbered(parts[i]) ? row : group;
    text = joined(text, parts[i]);
    if (parts[i].rfind("T:", 0) == 0) tokens = std::strtod(parts[i].c_str() + 2, nullptr);
  }
  if (row.empty()) row.swap(group);
}

bool natural_less(const std::string& a, const std::string& b) {
  std::string_view left = a, right = b;
  while (!left.empty() && !right.empty()) {
    const std::string_view x = first_piece(left), y = first_piece(right);
    left.remove_prefix(x.size()), right.remove_prefix(y.size());
    if (x == y) continue;
    const bool numbers =
        std::isdigit(static_cast<unsigned char>(x[0])) != 0 && std::isdigit(static_cast<unsigned char>(y[0])) != 0;
    if (!numbers) return x < y;
    const std::string_view p = x.substr(std::min(x.find_first_not_of('0'), x.size())),
                           q = y.substr(std::min(y.find_first_not_of('0'), y.size()));
    if (p != q) return p.size() != q.size() ? p.size() < q.size() : p < q;
  }
  return left.size() != right.size() ? left.size() < right.size() : a < b;
}

}  // namespace moecl::bench
