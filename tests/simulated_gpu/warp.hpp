#pragma once
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <random>

#include "tests/simulated_gpu/ptx.hpp"

namespace simulated_gpu {

inline constexpr int warp_lanes = 32;
template <class T>
using Lanes = std::array<T, warp_lanes>;
using Mask = std::uint32_t;
/// Fills memory before it is written: reads as NaN in every float type, and as an index far out of range.
inline constexpr std::uint8_t poison = 0xff;

/// A range of memory that a launch may access.
struct Range {
  std::uintptr_t begin, end;
};

struct Launch {
  const Entry* entry;
  std::array<std::uint32_t, 3> groups, items;
  std::vector<std::uint8_t> parameters;
  std::size_t shared_bytes;  ///< local memory of the entry's variables and of its parameters
  std::vector<Range> memory;
};

/// An mbarrier as it lies in local memory. It counts arrivals and bytes.
/// Source: PTX ISA, "mbarrier"; the layout of its 64 bits is not specified there
struct Barrier {
  std::uint64_t expected : 20, left : 20;
  std::uint64_t bytes : 21;  ///< still to come, modulo 2^21: bytes may come before they are expected
  std::uint64_t phase : 1, is_valid : 1;

  static Barrier of(std::uint32_t arrivals) { return {arrivals & 0xfffff, arrivals & 0xfffff, 0, 0, 1}; }
  void expect(std::uint64_t more) noexcept { bytes = (bytes + more) & 0x1fffff; }
  void complete_if_done() noexcept {
    if (left == 0 && bytes == 0) phase ^= 1, left = expected;
  }
};
static_assert(sizeof(Barrier) == 8);

/// Tracks when work-items, directly or by cp.async, last wrote each part of a work-group's local memory. Tensor cores
/// and bulk copies see such a write only after a proxy fence. Either the writing warp must execute the fence, or the
/// warp that then starts the tensor core or bulk copy.
/// Source: PTX ISA, "proxies" and "fence.proxy"
class ProxyFences {
 public:
  void start(std::size_t bytes, std::size_t warps) {
    written_.assign(bytes / granule + 1, {}), fenced_.assign(warps, 0);
  }
  void write(std::uint64_t address, std::size_t bytes, std::uint32_t warp) {
    for (std::uint64_t i = address / granule; i <= (address + bytes - 1) / granule; ++i) written_[i] = {now_, warp};
  }
  void fence(std::uint32_t warp) { fenced_[warp] = now_++; }
  /// @throws Fault  a copy unit or tensor core that works for that warp may not see the last write there
  void check(std::uint64_t address, std::uint32_t warp) const {
    const Written& at = written_[address / granule];
    if (at.when > fenced_[warp] && at.when > fenced_[at.by])
      throw Fault("local memory: no proxy fence since it was written");
  }

 private:
  static constexpr std::size_t granule = 16;
  struct Written {
    std::uint64_t when = 0;
    std::uint32_t by = 0;
  };
  std::vector<Written> written_;
  std::vector<std::uint64_t> fenced_;
  std::uint64_t now_ = 1;
};

/// A work-group, and the local memory that it occupies on its compute unit.
struct Group {
  const Launch* launch;
  std::array<std::uint32_t, 3> id;
  int compute_units;
  std::minstd_rand* random;
  std::vector<std::uint8_t> shared;
  ProxyFences proxies;
  std::vector<Warp> warps;
  std::vector<std::function<void()>> boxes;  ///< copies of tensor boxes in flight
  struct {
    std::uint32_t arrived = 0, generation = 0;
  } barriers[16];

  std::uint32_t living_warps() const;
  /// @throws Fault  the bytes are not all inside local memory
  std::uint8_t* shared_at(std::uint64_t address, std::size_t bytes);
  Barrier barrier_at(std::uint64_t address) {
    Barrier barrier;
    std::memcpy(&barrier, shared_at(address, sizeof(barrier)), sizeof(barrier));
    return barrier;
  }
  template <class Do>
  void change_barrier(std::uint64_t address, Do change) {
    Barrier barrier = barrier_at(address);
    change(barrier);
    std::memcpy(shared_at(address, sizeof(barrier)), &barrier, sizeof(barrier));
    ++barrier_changes;
  }
  std::uint64_t barrier_changes = 0;
  void arrive(std::uint64_t address, std::uint32_t count);
};

/// One asynchronous operation of a warp. They finish in the order in which they began.
struct Begun {
  int number;  ///< of the commit group
  std::function<void()> finish;
};
class AsyncOperations {
 public:
  void add(std::function<void()> finish) { begun_.push_back({committed_, std::move(finish)}); }
  void commit() noexcept { ++committed_; }
  /// Finishes all but the last `groups` commit groups.
  void finish_but(int groups) { finish_until(committed_ - groups); }
  void finish_one() {
    if (begun_.empty()) return;
    const std::function<void()> finish = std::move(begun_.front().finish);
    begun_.pop_front();
    finish();
  }
  bool empty() const noexcept { return begun_.empty(); }

 private:
  void finish_until(int number) {
    std::size_t count = begun_.size();
    while (count > 0 && begun_[count - 1].number >= number) --count;
    for (; count > 0; --count) finish_one();
  }
  std::deque<Begun> begun_;
  int committed_ = 0;
};

class Warp {
 public:
  /// `registers`: storage for the warp's registers
  Warp(Group& its_group, std::uint32_t its_number, std::vector<std::uint32_t> registers);
  std::vector<std::uint32_t> take_registers() noexcept { return std::move(registers_); }

  enum class State { ran, waits, done };
  /// Runs at most `instructions` instructions.
  State turn(int instructions);
  bool is_done() const noexcept { return splits_.empty(); }
  std::string where() const;

  // For instructions.
  Group& group;
  const std::uint32_t number;  ///< in the group
  Mask lanes = 0;              ///< active ones
  AsyncOperations copies, products;
  std::uint32_t barrier_generation = 0;
  bool is_at_barrier = false;
  std::optional<std::uint64_t> polls_since;  ///< the group's barrier_changes when a try_wait last failed

  Mask living() const noexcept { return living_; }
  bool all_are_here() const noexcept { return lanes == living_; }

  template <class T>
  Lanes<T> fetch(const Operand& from) const {
    Lanes<T> to;
    if (from.kind == Operand::Kind::lanes32 && sizeof(T) == 4) {
      std::memcpy(to.data(), &registers_[from.value], sizeof(to));
    } else if (from.kind == Operand::Kind::lanes64 && sizeof(T) == 8) {
      std::memcpy(to.data(), &registers_[from.value], sizeof(to));
    } else if (from.kind == Operand::Kind::lanes32 && sizeof(T) < 4) {
      for (int lane = 0; lane < warp_lanes; ++lane) to[lane] = static_cast<T>(registers_[from.value + lane]);
    } else if (from.kind == Operand::Kind::constant) {
      T value;
      std::memcpy(&value, &from.value, sizeof(T));
      to.fill(value);
    } else {
      for (int lane = 0; lane < warp_lanes; ++lane) {
        const std::uint64_t bits = bits_of(from, lane);
        std::memcpy(&to[lane], &bits, sizeof(T));
      }
    }
    return to;
  }
  template <class T>
  void store(const Operand& to, const Lanes<T>& from) {
    if (to.kind == Operand::Kind::lanes32 && sizeof(T) == 4) {
      put<std::uint32_t>(to, from);
    } else if (to.kind == Operand::Kind::lanes64 && sizeof(T) == 8) {
      put<std::uint64_t>(to, from);
    } else {
      for (int lane = 0; lane < warp_lanes; ++lane)
        if (lanes >> lane & 1) set_bits(to, lane, widened(from[lane]));
    }
  }
  /// The words of a register's lanes, for results that are written after their instruction.
  std::uint32_t* words(const Operand& of) { return &registers_[of.value]; }
  /// Global memory of the launch. The address must be aligned to `bytes`, at most to 16.
  std::uint8_t* global_at(std::uint64_t address, std::size_t bytes);
  /// The same, without alignment.
  std::uint8_t* global_bytes(std::uint64_t address, std::size_t bytes);
  bool is_local(std::uint64_t address) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(local_.data());
    return address >= begin && address < begin + local_.size();
  }
  std::uint8_t* local_at(std::uint64_t address) { return reinterpret_cast<std::uint8_t*>(address); }

 private:
  struct Split {
    int at;
    Mask lanes;
    bool waits;
  };
  template <class T>
  static std::uint64_t widened(T value) {
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    } else {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(T));
      return bits;
    }
  }
  template <class Word, class T>
  void put(const Operand& to, const Lanes<T>& from) {
    std::uint32_t* const words = &registers_[to.value];
    if (lanes == ~Mask{0}) return static_cast<void>(std::memcpy(words, from.data(), sizeof(from)));
    for (int lane = 0; lane < warp_lanes; ++lane)
      if (lanes >> lane & 1) std::memcpy(words + lane * (sizeof(Word) / 4), &from[lane], sizeof(T));
  }
  std::uint64_t bits_of(const Operand& from, int lane) const;
  void set_bits(const Operand& to, int lane, std::uint64_t bits);
  void step(std::size_t split, Flow flow, int target);
  void merge();

  std::vector<std::uint32_t> registers_;
  std::vector<std::uint8_t> local_;
  std::vector<Split> splits_;
  Mask living_;
  Range last_range_{0, 0};
};

}  // namespace simulated_gpu
