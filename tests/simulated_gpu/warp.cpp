#include "tests/simulated_gpu/warp.hpp"

#include <algorithm>
#include <sstream>

namespace simulated_gpu {
std::uint32_t Group::living_warps() const {
  return static_cast<std::uint32_t>(
      std::count_if(warps.begin(), warps.end(), [](const Warp& warp) { return !warp.is_done(); }));
}
std::uint8_t* Group::shared_at(std::uint64_t address, std::size_t bytes) {
  if (address % std::min<std::size_t>(bytes, 16) != 0 || address > shared.size() || bytes > shared.size() - address)
    throw Fault("local memory: " + std::to_string(bytes) + " bytes at " + std::to_string(address) + " of " +
                std::to_string(shared.size()));
  return shared.data() + address;
}
void Group::arrive(std::uint64_t address, std::uint32_t count) {
  change_barrier(address, [&](Barrier& barrier) {
    if (!barrier.is_valid || barrier.left < count) throw Fault("more arrivals than the barrier expects");
    barrier.left = (barrier.left - count) & 0xfffff;
    barrier.complete_if_done();
  });
}

Warp::Warp(Group& its_group, std::uint32_t its_number, std::vector<std::uint32_t> registers)
    : group(its_group),
      number(its_number),
      registers_(std::move(registers)),
      local_(warp_lanes * group.launch->entry->local_bytes, poison) {
  const auto& items = group.launch->items;
  const std::uint32_t left = items[0] * items[1] * items[2] - number * warp_lanes;
  living_ = left >= warp_lanes ? ~Mask{0} : (Mask{1} << left) - 1;
  splits_.push_back({0, living_, false});
}

std::uint64_t Warp::bits_of(const Operand& from, int lane) const {
  switch (from.kind) {
    case Operand::Kind::lanes32:
      return registers_[from.value + lane];
    case Operand::Kind::lanes64:
      return registers_[from.value + 2 * lane] | static_cast<std::uint64_t>(registers_[from.value + 2 * lane + 1])
                                                     << 32;
    case Operand::Kind::constant:
      return from.value;
    case Operand::Kind::local:
      return reinterpret_cast<std::uintptr_t>(local_.data()) + lane * group.launch->entry->local_bytes + from.value;
    case Operand::Kind::parts:
      throw Fault("a vector where there should be a number");
    case Operand::Kind::special:
      break;
  }
  const auto& items = group.launch->items;
  const std::uint32_t item = number * warp_lanes + lane;
  switch (static_cast<Special>(from.value)) {
    case Special::tid_x:
      return item % items[0];
    case Special::tid_y:
      return item / items[0] % items[1];
    case Special::tid_z:
      return item / items[0] / items[1];
    case Special::ntid_x:
    case Special::ntid_y:
    case Special::ntid_z:
      return items[from.value - static_cast<std::uint64_t>(Special::ntid_x)];
    case Special::ctaid_x:
    case Special::ctaid_y:
    case Special::ctaid_z:
      return group.id[from.value - static_cast<std::uint64_t>(Special::ctaid_x)];
    case Special::nctaid_x:
    case Special::nctaid_y:
    case Special::nctaid_z:
      return group.launch->groups[from.value - static_cast<std::uint64_t>(Special::nctaid_x)];
    case Special::laneid:
      return lane;
    case Special::smid:
      return (*group.random)() % group.compute_units;  // it may be another one at each read
  }
  return 0;
}
void Warp::set_bits(const Operand& to, int lane, std::uint64_t bits) {
  if (to.kind == Operand::Kind::lanes32) {
    registers_[to.value + lane] = static_cast<std::uint32_t>(bits);
  } else if (to.kind == Operand::Kind::lanes64) {
    registers_[to.value + 2 * lane] = static_cast<std::uint32_t>(bits);
    registers_[to.value + 2 * lane + 1] = static_cast<std::uint32_t>(bits >> 32);
  } else {
    throw Fault("a result that is no register");
  }
}
std::uint8_t* Warp::global_at(std::uint64_t address, std::size_t bytes) {
  if (address % std::min<std::size_t>(bytes, 16) != 0) throw Fault("global memory: an address that is not aligned");
  return global_bytes(address, bytes);
}
std::uint8_t* Warp::global_bytes(std::uint64_t address, std::size_t bytes) {
  if (address < last_range_.begin || address + bytes > last_range_.end) {
    const auto& memory = group.launch->memory;
    const auto range = std::find_if(memory.begin(), memory.end(), [&](const Range& one) {
      return address >= one.begin && address + bytes <= one.end;
    });
    if (range == memory.end()) {
      std::ostringstream what;
      what << "global memory: " << bytes << " bytes at " << std::hex << address << ", which no buffer has;";
      for (const Range& one : memory) what << ' ' << one.begin << ".." << one.end;
      throw Fault(what.str());
    }
    last_range_ = *range;
  }
  return reinterpret_cast<std::uint8_t*>(address);
}

void Warp::merge() {
  std::sort(splits_.begin(), splits_.end(), [](const Split& a, const Split& b) { return a.at < b.at; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    if (splits_[i].lanes == 0) continue;
    if (kept > 0 && splits_[kept - 1].at == splits_[i].at) {
      splits_[kept - 1].lanes |= splits_[i].lanes;
      splits_[kept - 1].waits = false;  // together they may go on
    } else {
      splits_[kept++] = splits_[i];
    }
  }
  splits_.resize(kept);
}
void Warp::step(std::size_t split, Flow flow, int target) {
  Split& now = splits_[split];
  switch (flow) {
    case Flow::next:
      ++now.at;
      break;
    case Flow::yield:
      ++now.at, now.waits = true;
      break;
    case Flow::jump:
      if (lanes == now.lanes) {
        now.at = target;
      } else {
        now.lanes &= ~lanes, ++now.at;
        splits_.push_back({target, lanes, false});
      }
      break;
    case Flow::exit:
      living_ &= ~lanes, now.lanes &= ~lanes, ++now.at;
      break;
    case Flow::wait:
      now.waits = true;
      break;
  }
}

Warp::State Warp::turn(int instructions) {
  for (Split& split : splits_) split.waits = false;
  const std::vector<Instruction>& code = group.launch->entry->code;
  for (; instructions > 0; --instructions) {
    if (splits_.size() != 1 || splits_.front().lanes == 0) merge();
    if (splits_.empty()) return State::done;
    // The lanes that are furthest behind go first, so that diverged lanes meet again.
    const auto ready = std::find_if(splits_.begin(), splits_.end(), [](const Split& split) { return !split.waits; });
    if (ready == splits_.end()) return State::waits;
    if (static_cast<std::size_t>(ready->at) >= code.size()) throw Fault("the end of the code without ret");
    const Instruction& instruction = code[ready->at];
    lanes = ready->lanes;
    if (instruction.guard >= 0)
      for (int lane = 0; lane < warp_lanes; ++lane)
        if ((registers_[instruction.guard + lane] & 1) == static_cast<std::uint32_t>(instruction.guard_is_negated))
          lanes &= ~(Mask{1} << lane);
    if (lanes == 0) {
      ++ready->at;
      continue;
    }
    Flow flow;
    try {
      flow = instruction.execute(*this, instruction);
    } catch (const Fault& fault) {
      throw Fault(std::string(fault.what()) + "\n  in '" + instruction.text + "' of " + group.launch->entry->name +
                  ", group " + std::to_string(group.id[0]) + ", warp " + std::to_string(number));
    }
    step(ready - splits_.begin(), flow, instruction.target);
  }
  return State::ran;
}
std::string Warp::where() const {
  std::ostringstream text;
  for (const Split& split : splits_) {
    text << "\n  group " << group.id[0] << " warp " << number << " lanes " << std::hex << split.lanes << std::dec
         << ": " << group.launch->entry->code[split.at].text;
  }
  return text.str();
}

}  // namespace simulated_gpu
