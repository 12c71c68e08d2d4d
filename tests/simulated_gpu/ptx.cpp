#include "tests/simulated_gpu/ptx.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

namespace simulated_gpu {
namespace {

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}

std::string without_comments(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t comment = text.find("//");
    kept += text.substr(0, comment);
    if (comment == std::string_view::npos) break;
    text.remove_prefix(std::min(text.find('\n', comment), text.size()));
  }
  return kept;
}

class Parser {
 public:
  Parser(std::string text, Module& module) : text_(std::move(text)), module_(module) {}

  void parse() {
    for (skip_space(); at_ < text_.size(); skip_space()) {
      const std::string word = directive();
      if (word == ".version" || word == ".target" || word == ".address_size")
        skip_line();
      else if (word == ".visible" || word == ".extern" || word == ".weak")
        continue;
      else if (word == ".global" || word == ".const")
        variable();
      else if (word == ".entry")
        entry();
      else if (word == ".func")
        skip_function();
      else
        fault("a directive that is not simulated: " + word);
    }
  }

 private:
  [[noreturn]] void fault(const std::string& what) const {
    throw Fault("PTX: " + what + " at '" + text_.substr(at_, 60) + "'");
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  void skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fault(std::string("no ") + c);
  }
  std::string word() {
    skip_space();
    const std::size_t from = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  std::string directive() {
    if (!take('.')) fault("no directive");
    return "." + word();
  }
  /// A name with dots and colons: a mnemonic, or a special register.
  std::string dotted() {
    std::string name = word();
    while (at_ + 1 < text_.size() && (text_[at_] == '.' || text_.compare(at_, 2, "::") == 0)) {
      const std::size_t length = text_[at_] == '.' ? 1 : 2;
      name += text_.substr(at_, length);
      at_ += length;
      name += word();
    }
    return name;
  }
  std::uint64_t number() {
    skip_space();
    const bool negative = take('-');
    const std::string digits = word();
    std::uint64_t value = 0;
    if (digits.size() > 2 && digits[0] == '0' &&
        (digits[1] == 'f' || digits[1] == 'd' || digits[1] == 'x' || digits[1] == 'F' || digits[1] == 'D'))
      value = std::stoull(digits.substr(2), nullptr, 16);
    else if (digits.empty() || std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
      fault("no number: " + digits);
    return negative ? -value : value;
  }
  static std::size_t bytes_of(const std::string& type) {
    if (type == ".pred") return 4;
    std::size_t bits = 0;
    std::from_chars(type.data() + 2, type.data() + type.size(), bits);
    return bits / 8;
  }
  struct Declared {
    std::string name;
    std::size_t alignment = 1, bytes = 0;
  };
  /// `[.align N] .type name[count]`
  Declared declaration() {
    Declared declared;
    std::string type = directive();
    if (type == ".align") declared.alignment = number(), type = directive();
    declared.bytes = bytes_of(type);
    declared.alignment = std::max(declared.alignment, declared.bytes);
    declared.name = word();
    while (take('[')) declared.bytes *= number(), expect(']');
    return declared;
  }
  void variable() {
    const Declared declared = declaration();
    std::vector<std::uint8_t>& bytes = module_.variables[declared.name];
    if (bytes.empty()) bytes.resize(declared.bytes + declared.alignment);
    // The heap may align less than the declaration asks for.
    const std::size_t skew = -reinterpret_cast<std::uintptr_t>(bytes.data()) % declared.alignment;
    std::uint8_t* to = bytes.data() + skew;
    addresses_[declared.name] = reinterpret_cast<std::uintptr_t>(to);
    if (take('=')) {
      expect('{');
      do *to++ = static_cast<std::uint8_t>(number());
      while (take(','));
      expect('}');
    }
    take(';');
  }

  /// The compiler leaves copies of functions that it has inlined. A call would be an unknown instruction.
  void skip_function() {
    while (at_ < text_.size() && text_[at_] != '{' && text_[at_] != ';') ++at_;
    int depth = 0;
    do {
      if (at_ >= text_.size()) fault("a function without an end");
      depth += text_[at_] == '{' ? 1 : text_[at_] == '}' ? -1 : 0;
      ++at_;
    } while (depth > 0);
  }
  void entry() {
    Entry entry;
    entry.name = word();
    expect('(');
    labels_.clear(), jumps_.clear(), entry_ = &entry, depth_ = 0;
    while (!take(')')) {
      if (directive() != ".param") fault("no parameter");
      std::string type = directive();
      std::uint64_t alignment = 0;  // of a struct, which is an array of bytes
      if (type == ".align") alignment = number(), type = directive();
      Parameter parameter{0, bytes_of(type), Parameter::Kind::value};
      if (alignment == 0) alignment = parameter.size;
      for (skip_space(); text_[at_] == '.'; skip_space()) {
        const std::string more = directive();
        if (more == ".global" || more == ".const")
          parameter.kind = Parameter::Kind::global;
        else if (more == ".shared")
          parameter.kind = Parameter::Kind::shared;
        else if (more == ".align")
          number();
        else if (more != ".ptr")
          fault("a parameter's " + more);
      }
      const std::string name = word();
      while (take('[')) parameter.size *= number(), expect(']');
      parameter.offset = (entry.parameter_bytes + alignment - 1) / alignment * alignment;
      entry.parameter_bytes = parameter.offset + parameter.size;
      addresses_[name] = parameter.offset;
      entry.parameters.push_back(parameter);
      take(',');
    }
    for (skip_space(); text_[at_] == '.'; skip_space()) {
      const std::string word = directive();
      const auto items = static_cast<std::uint32_t>(number());
      std::uint32_t all = items;
      while (take(',')) all *= static_cast<std::uint32_t>(number());
      if (word == ".reqntid") entry.required_items = all;
    }
    expect('{');
    ++depth_;
    scopes_.emplace_back();
    while (depth_ > 0) statement();
    for (const auto& [instruction, label] : jumps_) {
      if (labels_.count(label) == 0) throw Fault("PTX: no label " + label);
      entry.code[instruction].target = labels_[label];
    }
    module_.entries.emplace(entry.name, std::move(entry));
  }

  void statement() {
    if (take('}')) return static_cast<void>((--depth_, scopes_.pop_back()));
    if (take('{')) return static_cast<void>((++depth_, scopes_.emplace_back()));
    if (take(';')) return;
    skip_space();
    if (text_[at_] == '.') return declarations();
    const std::size_t begin = at_;
    if (text_[at_] != '@') {
      const std::string name = dotted();
      if (take(':')) return static_cast<void>(labels_[name] = static_cast<int>(entry_->code.size()));
      at_ = begin;
    }
    instruction();
  }
  void declarations() {
    const std::string space = directive();
    if (space == ".reg") {
      const std::string type = directive();
      do {
        const std::string name = word();
        int count = 0;
        if (take('<')) count = static_cast<int>(number()), expect('>');
        if (count == 0) declare_register(name, type);
        for (int i = 0; i < count; ++i) declare_register(name + std::to_string(i), type);
      } while (take(','));
    } else if (space == ".shared" || space == ".local") {
      const Declared declared = declaration();
      std::size_t& used = space == ".shared" ? entry_->shared_bytes : entry_->local_bytes;
      used = (used + declared.alignment - 1) / declared.alignment * declared.alignment;
      if (space == ".shared")
        addresses_[declared.name] = used;
      else
        scopes_.back()[declared.name] = {Operand::Kind::local, used, {}};
      used += declared.bytes;
    } else if (space == ".global") {
      return variable();
    } else if (space == ".loc" || space == ".pragma") {
      return skip_line();
    } else {
      fault("a declaration that is not simulated: " + space);
    }
    expect(';');
  }
  void declare_register(const std::string& name, const std::string& type) {
    const bool is_wide = bytes_of(type) == 8;
    scopes_.back()[name] = {
        is_wide ? Operand::Kind::lanes64 : Operand::Kind::lanes32, entry_->register_words, {}, type == ".pred"};
    entry_->register_words += is_wide ? 64 : 32;
  }
  const Operand* find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    return nullptr;
  }

  void instruction() {
    Instruction made;
    const std::size_t begin = at_;
    if (take('@')) {
      made.guard_is_negated = take('!');
      const std::string name = word();
      const Operand* guard = find(name);
      if (guard == nullptr) fault("no predicate " + name);
      made.guard = static_cast<std::int64_t>(guard->value);
    }
    const std::string mnemonic = dotted();
    made.execute = find_instruction(mnemonic);
    if (mnemonic == "bra" || mnemonic == "bra.uni")
      jumps_.emplace_back(entry_->code.size(), (skip_space(), dotted()));
    else
      for (skip_space(); text_[at_] != ';'; skip_space()) made.operands.push_back(operand()), take(',');
    made.text = text_.substr(begin, at_ - begin);
    expect(';');
    entry_->code.push_back(std::move(made));
  }
  Operand operand() {
    skip_space();
    Operand made;
    if (take('{')) {
      made.kind = Operand::Kind::parts;
      while (!take('}')) made.parts.push_back(operand()), take(',');
      return made;
    }
    if (take('[')) {
      made.kind = Operand::Kind::parts;
      made.parts.push_back(operand());
      if (take('+')) made.value = number();
      if (take(',')) made.parts.push_back(operand());
      expect(']');
      return made;
    }
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-') {
      made.value = number();
      return made;
    }
    const std::string name = dotted();
    if (const Operand* found = find(name)) return *found;
    static const std::map<std::string, Special> specials = {
        {"%tid.x", Special::tid_x},       {"%tid.y", Special::tid_y},       {"%tid.z", Special::tid_z},
        {"%ntid.x", Special::ntid_x},     {"%ntid.y", Special::ntid_y},     {"%ntid.z", Special::ntid_z},
        {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},   {"%ctaid.z", Special::ctaid_z},
        {"%nctaid.x", Special::nctaid_x}, {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
        {"%laneid", Special::laneid},     {"%smid", Special::smid}};
    if (const auto found = specials.find(name); found != specials.end()) {
      made.kind = Operand::Kind::special, made.value = static_cast<std::uint64_t>(found->second);
      return made;
    }
    // libclc's get_global_offset reads this register. Launches begin at 0.
    if (name.rfind("%envreg", 0) == 0) return made;
    const auto found = addresses_.find(name);
    if (found == addresses_.end()) fault("no register or variable " + name);
    made.value = found->second;
    return made;
  }

  std::string text_;
  std::size_t at_ = 0;
  Module& module_;
  Entry* entry_ = nullptr;
  int depth_ = 0;
  std::vector<std::map<std::string, Operand>> scopes_;
  std::map<std::string, std::uint64_t> addresses_;
  std::map<std::string, int> labels_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
};

}  // namespace

Module::Module(std::string_view ptx) { Parser(without_comments(ptx), *this).parse(); }

}  // namespace simulated_gpu
