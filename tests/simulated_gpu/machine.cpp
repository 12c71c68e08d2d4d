#include "tests/simulated_gpu/machine.hpp"

#include <algorithm>
#include <list>
#include <random>

namespace simulated_gpu {
namespace {

constexpr int longest_turn = 64;         // instructions
constexpr int longest_silence = 100000;  // consecutive turns in which nothing happens

class Machine {
 public:
  Machine(const Launch& launch, int compute_units, unsigned seed)
      : launch_(launch), compute_units_(compute_units), random_(seed) {}

  void run() {
    const std::uint64_t count = std::uint64_t{1} * launch_.groups[0] * launch_.groups[1] * launch_.groups[2];
    for (std::uint64_t begun = 0; begun < count || !resident_.empty();) {
      while (begun < count && resident_.size() < most_resident()) begin_group(begun++);
      for (Group& group : resident_) {
        give_turns(group);
        copy_some_boxes(group);
      }
      if (silence_ > longest_silence) throw Fault(where_everybody_is());
      resident_.remove_if([this](Group& group) { return end_group(group); });
    }
  }

 private:
  std::uint32_t items() const { return launch_.items[0] * launch_.items[1] * launch_.items[2]; }
  /// A compute unit holds as many work-groups as its local memory and 2048 work-items allow.
  std::uint64_t most_resident() const {
    const std::uint64_t by_items = 2048 / std::max(items(), 32U),
                        by_memory = 228 * 1024 / (launch_.shared_bytes + 1024);
    return std::max<std::uint64_t>(1, std::min(by_items, by_memory)) * static_cast<std::uint64_t>(compute_units_);
  }
  void begin_group(std::uint64_t number) {
    Group& group = resident_.emplace_back();
    const std::uint64_t width = launch_.groups[0], height = launch_.groups[1];
    group.id = {static_cast<std::uint32_t>(number % width), static_cast<std::uint32_t>(number / width % height),
                static_cast<std::uint32_t>(number / width / height)};
    group.launch = &launch_, group.random = &random_, group.compute_units = compute_units_;
    const std::uint32_t warps = (items() + warp_lanes - 1) / warp_lanes;
    group.shared.assign(launch_.shared_bytes, poison);
    group.proxies.start(launch_.shared_bytes, warps);
    group.warps.reserve(warps);
    for (std::uint32_t warp = 0; warp < warps; ++warp) group.warps.emplace_back(group, warp, take_registers());
  }
  std::vector<std::uint32_t> take_registers() {
    if (spare_registers_.empty()) return std::vector<std::uint32_t>(launch_.entry->register_words);
    std::vector<std::uint32_t> taken = std::move(spare_registers_.back());
    spare_registers_.pop_back();
    return taken;
  }
  /// Gives each warp of the group a turn, starting with a random warp.
  void give_turns(Group& group) {
    const std::size_t first = random_() % group.warps.size();
    for (std::size_t i = 0; i < group.warps.size(); ++i) {
      Warp& warp = group.warps[(first + i) % group.warps.size()];
      const bool may_go_on = warp.polls_since != group.barrier_changes;
      const bool ran = may_go_on && warp.turn(static_cast<int>(1 + random_() % longest_turn)) == Warp::State::ran;
      silence_ = ran ? 0 : silence_ + 1;
      finish_some(warp.copies);
      finish_some(warp.products);
    }
  }
  bool is_time() { return random_() % 4 == 0; }
  void finish_some(AsyncOperations& operations) {
    while (!operations.empty() && is_time()) operations.finish_one(), silence_ = 0;
  }
  /// The boxes arrive in random order.
  void copy_some_boxes(Group& group) {
    while (!group.boxes.empty() && is_time()) {
      std::swap(group.boxes[random_() % group.boxes.size()], group.boxes.back());
      const std::function<void()> copy = std::move(group.boxes.back());
      group.boxes.pop_back();
      copy();
      silence_ = 0;
    }
  }
  bool end_group(Group& group) {
    if (group.living_warps() != 0) return false;
    if (!group.boxes.empty()) throw Fault("a work-group ends before its boxes have come");
    for (Warp& warp : group.warps) spare_registers_.push_back(warp.take_registers());
    return true;
  }
  std::string where_everybody_is() const {
    std::string text = launch_.entry->name + " waits for ever:";
    for (const Group& group : resident_)
      for (const Warp& warp : group.warps) text += warp.where();
    return text;
  }

  const Launch& launch_;
  int compute_units_;
  std::minstd_rand random_;
  std::list<Group> resident_;
  std::vector<std::vector<std::uint32_t>> spare_registers_;
  int silence_ = 0;
};

}  // namespace

void run(const Launch& launch, int compute_units, unsigned seed) { Machine(launch, compute_units, seed).run(); }

}  // namespace simulated_gpu
