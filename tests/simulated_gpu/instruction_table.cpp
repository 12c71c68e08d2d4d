#include "tests/simulated_gpu/instruction_table.hpp"

#include <algorithm>
#include <set>

namespace simulated_gpu {
namespace {

Table all_instructions() {
  Table table;
  add_arithmetic(table);
  add_conversions(table);
  add_memory(table);
  add_control(table);
  add_matrix_products(table);
  add_asynchronous_copies(table);
  return table;
}

/// The mnemonic without qualifiers for memory ordering and caching.
std::string plain(std::string_view mnemonic) {
  static const std::set<std::string_view> families = {"ld", "st", "atom", "red"},
                                          left_out = {"volatile", "relaxed", "acquire", "release", "acq_rel",
                                                      "nc",       "gpu",     "sys",     "cta"};
  std::string name(mnemonic.substr(0, mnemonic.find('.')));
  if (families.count(name) == 0) return std::string(mnemonic);
  for (std::size_t at = name.size(); at < mnemonic.size();) {
    const std::size_t next = std::min(mnemonic.find('.', at + 1), mnemonic.size());
    const std::string_view word = mnemonic.substr(at, next - at);
    if (left_out.count(word.substr(1)) == 0) name += word;
    at = next;
  }
  return name;
}

}  // namespace

Execute find_instruction(std::string_view mnemonic) {
  static const Table table = all_instructions();
  const auto found = table.find(plain(mnemonic));
  if (found == table.end()) throw Fault("no instruction " + std::string(mnemonic) + " is simulated");
  return found->second;
}

}  // namespace simulated_gpu
