#include "host/checkpoint/json_file.hpp"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "host/checkpoint/input_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_file_bytes = 100'000'000;

/// Fails if a text is not JSON, is nested too deeply or has a key twice; the parser would accept the last two. This is
/// a pass of its own: a parser with a callback walks through all members of an object each time one of them ends.
class StrictJson : public nlohmann::json_sax<json> {
 public:
  StrictJson(const std::string& origin, int max_depth) : origin_(origin), max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) fail(ErrorCode::invalid_data, "{}: key \"{}\" occurs twice", origin_, name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    fail(ErrorCode::invalid_data, "{}: {}", origin_, error.what());
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= max_depth_) return true;
    fail(ErrorCode::invalid_data, "{}: JSON nested deeper than {} levels", origin_, max_depth_);
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& origin_;
  int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  ///< a set per open object or array; empty for an array
};

}  // namespace

JsonDocument parse_json(std::string_view text, const std::string& origin, int max_depth) {
  // The parser takes a NUL for the end of the text and would not see the rest.
  if (const auto nul = text.find('\0'); nul != text.npos)
    fail(ErrorCode::invalid_data, "{}: a NUL byte at offset {} of the JSON", origin, nul);
  StrictJson strict(origin, max_depth);
  json::sax_parse(text.begin(), text.end(), &strict);
  JsonDocument parsed = JsonDocument::parse(text);
  if (!parsed.root.is_object())
    fail(ErrorCode::invalid_data, "{}: expected a JSON object, got {}", origin, parsed.root.type_name());
  return parsed;
}

JsonDocument read_json_file(const std::string& path) {
  const InputFile file(path);
  if (file.size() > max_file_bytes)
    fail(ErrorCode::invalid_data, "{}: {} bytes of JSON, more than {}", path, file.size(), max_file_bytes);
  return parse_json(file.text(0, file.size()), path);
}

json::json_pointer pointer_to(const std::string& path) {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return json::json_pointer(pointer);
}

const json* find_member(const json& object, const std::string& path) {
  const json::json_pointer pointer = pointer_to(path);
  if (!object.contains(pointer)) return nullptr;
  const json& found = object.at(pointer);
  return found.is_null() ? nullptr : &found;
}

}  // namespace moecl
