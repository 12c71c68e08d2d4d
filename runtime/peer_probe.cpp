#include "runtime/peer_probe.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sstream>

#include "runtime/check.hpp"
#include "runtime/child_process.hpp"
#include "runtime/external_memory.hpp"
#include "runtime/kernel.hpp"

namespace moecl::peer_probe {
namespace {

const ProgramSource source{"peer_probe", R"cl(
__kernel void address_of(__global int* words, __global long* address) { *address = (long)words; }
__kernel void store(const __global int* from, __global int* to, const __global long* address) {
  const int i = get_global_id(0);
  __global int* const by_address = (__global int*)*address;
  if (i % 2 == 0)
    to[i] = from[i];
  else
    by_address[i] = from[i];
}
)cl"};

constexpr std::int64_t words = 1 << 20;
/// Making two contexts for each GPU takes about a second.
constexpr std::chrono::milliseconds patience{60000};

std::string verdict_on(const ExternalMemory& driver, StreamView owner, StreamView user) {
  try {
    const std::vector<Buffer> memory = driver.allocate(owner, {user}, words * 4);
    check_stores(owner, memory[0], user, memory[1]);
    return {};
  } catch (const Error& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
}

}  // namespace

void check_stores(StreamView owner, const Buffer& owned, StreamView user, const Buffer& seen) {
  std::vector<std::int32_t> pattern(words), arrived(words);
  std::iota(pattern.begin(), pattern.end(), 0x6d6f6563);
  const auto as_words = [](const Buffer& buffer) {
    return TensorView(buffer.view().slice(0, words * 4), DType::i32, {words});
  };
  const Buffer from(*user.context, words * 4), address_memory(*user.context, 8);
  const TensorView address(address_memory.view(), DType::i64, {1});
  enqueue_fill(owner, as_words(owned).buffer, 0);
  owner.finish();
  write_blocking(user, from.view(), pattern.data(), words * 4);
  launch(user, {&source, "", "address_of"}, {}, {}, {"peer_probe", "address_of", "", 8, 0}, as_words(seen), address);
  launch(user, {&source, "", "store"}, {{words, 1, 1}, {64, 1, 1}}, {}, {"peer_probe", "store", "", 2 * words * 4, 0},
         as_words(from), as_words(seen), address);
  user.finish();
  read_blocking(owner, as_words(owned).buffer, arrived.data(), words * 4);
  if (arrived != pattern) fail(ErrorCode::device_error, "other bytes arrived than were stored");
}

void print_verdicts(const std::vector<std::string>& uuids) {
  if (uuids.empty()) return;
  const ExternalMemory driver;
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<std::string, Stream> streams;
  for (const Device& device : select_devices("NVIDIA")) {
    const std::string uuid = device_uuid(device);
    if (std::find(uuids.begin(), uuids.end(), uuid) == uuids.end()) continue;
    ContextOptions options;
    options.disk_cache = false;
    contexts.push_back(Context::create({device}, options));
    streams.emplace(uuid, Stream(*contexts.back()));
  }
  for (const auto& [owner_id, owner] : streams)
    for (const auto& [user_id, user] : streams)
      if (owner_id != user_id) {
        std::printf("%s %s %s\n", owner_id.c_str(), user_id.c_str(), verdict_on(driver, owner, user).c_str());
        std::fflush(stdout);
      }
}

Verdicts of_devices(const std::vector<std::string>& uuids, const std::string& program) {
  std::string untried = "the probe said nothing about this pair";
  Verdicts verdicts;
  try {
    std::vector<std::string> arguments = {"probe"};
    arguments.insert(arguments.end(), uuids.begin(), uuids.end());
    std::istringstream lines(output_of(program, arguments, patience));
    std::string owner, user, verdict;
    while (lines >> owner >> user && lines.get() == ' ' && std::getline(lines, verdict))
      verdicts[{owner, user}] = verdict;
  } catch (const Error& error) {
    untried = error.what();
    verdicts.clear();
  }
  for (const std::string& owner : uuids)
    for (const std::string& user : uuids)
      if (owner != user) verdicts.emplace(std::pair(owner, user), untried);
  return verdicts;
}

}  // namespace moecl::peer_probe
