#include "runtime/json_document.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/check.hpp"

namespace moecl {
namespace {

using nlohmann::json;

void empty(json& value) noexcept {
  if (auto* list = value.get_ptr<json::array_t*>()) {
    for (json& item : *list) empty(item);
    list->clear();
  } else if (auto* members = value.get_ptr<json::object_t*>()) {
    for (auto& [name, member] : *members) empty(member);
    members->clear();
  }
}

/// Copies in place, so that the document owns all parts made so far if memory runs out.
void copy(const json& from, json& to) {
  if (from.is_array()) {
    to = json::array();
    for (const json& item : from) copy(item, to.get_ref<json::array_t&>().emplace_back());
  } else if (from.is_object()) {
    to = json::object();
    for (const auto& [name, member] : from.items()) copy(member, to[name]);
  } else {
    to = from;
  }
}

/// Builds a tree in the caller's root from the parser's events.
class Builder {
 public:
  explicit Builder(json& root) : root_(root) {}

  bool null() { return place(json()), true; }
  bool boolean(bool value) { return place(value), true; }
  bool number_integer(json::number_integer_t value) { return place(value), true; }
  bool number_unsigned(json::number_unsigned_t value) { return place(value), true; }
  bool number_float(json::number_float_t value, const std::string&) { return place(value), true; }
  bool string(std::string& value) { return place(std::move(value)), true; }
  bool binary(json::binary_t&) { return false; }  // JSON has none
  bool start_object(std::size_t) { return enter(place(json::object())); }
  bool start_array(std::size_t) { return enter(place(json::array())); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  template <class ParseError>
  bool parse_error(std::size_t, const std::string&, const ParseError& error) {
    throw ParseError(error);
  }

 private:
  static constexpr std::size_t deepest = 256;  ///< bounds the recursion of `empty`

  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (auto* list = open_.back()->get_ptr<json::array_t*>()) return list->emplace_back(std::move(value));
    return (*open_.back())[key_] = std::move(value);
  }
  bool enter(json& value) {
    if (open_.size() == deepest) fail(ErrorCode::invalid_data, "JSON nested deeper than {} levels", deepest);
    open_.push_back(&value);
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  json& root_;
  std::vector<json*> open_;  ///< arrays and objects that are still open
  std::string key_;          ///< of the next member
};

}  // namespace

JsonDocument::JsonDocument(const nlohmann::json& of) : JsonDocument() { copy(of, root); }

JsonDocument::~JsonDocument() { empty(root); }

JsonDocument JsonDocument::parse(std::string_view text) {
  JsonDocument document;
  Builder builder(document.root);
  json::sax_parse(text.begin(), text.end(), &builder);
  return document;
}

}  // namespace moecl
