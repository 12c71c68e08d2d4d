#pragma once
// A cache of expert weights: host memory holds all experts, which take turns in a few slots of device memory.
#include <moecl/buffer.hpp>
#include <moecl/expert_slots.hpp>
#include <moecl/layer_options.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

struct CacheOptions {
  std::int64_t slots = 0;  ///< 0: as many as experts
  expert_slots::Policy policy = expert_slots::Policy::lru;
  std::vector<float> priorities = {};  ///< for the fixed policy. Shape: [E]; empty: 0
  bool in_place = false;               ///< products read host memory: slots only count
};

class ExpertCache {
 public:
  ExpertCache() = default;
  /// @param options  0 < slots < experts
  ExpertCache(StreamView stream, std::int64_t experts, const CacheOptions& options);
  /// Adds one piece of every expert to what `fetch` copies. An empty `host` adds nothing.
  /// @param host  [experts] pieces of equal size. @param device  [slots] pieces; empty if experts are read in place
  void add(const Buffer& host, const Buffer& device);

  bool present() const noexcept { return slots_.present(); }
  bool in_place() const noexcept { return in_place_; }
  std::int64_t slot_count() const noexcept { return holders_.shape[0]; }
  /// For grouped_gemm::Args::slots.
  TensorView slots(std::int64_t first, std::int64_t count) const { return part(slots_, first, count); }
  /// A range of experts, and the slots that they may take.
  struct Part {
    std::int64_t first, count;
    std::int64_t first_slot = 0, slots = 0;  ///< 0: all
    bool foreseen = false;                   ///< as in expert_slots::Claim
  };
  /// Gives slots to the experts of `part` that have rows. Async: a kernel
  /// @param row_ends  of all experts of this cache
  void claim(StreamView stream, TensorView row_ends, const Part& part) const;
  /// Copies the experts that the last claim of `claimed` asks for to the same slots of this cache. Async: a kernel for
  /// each piece that was added.
  /// @param most_used  upper bound of the experts with rows
  void fetch(StreamView stream, const ExpertCache& claimed, std::int64_t most_used) const;
  /// Empties all slots, for weights that have been written anew. Async
  void forget(StreamView stream) const;
  /// Bytes of one expert.
  std::uint64_t expert_bytes() const noexcept;
  /// Stops the host.
  ResidencyCounts counts(StreamView stream) const;

 private:
  struct Piece {
    TensorView host, device;  ///< Shape: [E, bytes], [S, bytes] u8; `device` is absent if read in place
  };
  static TensorView part(const TensorView& of, std::int64_t first, std::int64_t count) {
    const auto bytes = [](std::int64_t elements) {
      return static_cast<std::uint64_t>(elements) * sizeof(std::int32_t);
    };
    return {of.buffer.slice(bytes(first), bytes(count)), DType::i32, {count}};
  }

  Buffer memory_;
  TensorView slots_, holders_, priorities_, fetches_, counters_, awaited_;
  std::vector<Piece> pieces_;
  expert_slots::Policy policy_ = expert_slots::Policy::lru;
  bool in_place_ = false;
};

}  // namespace moecl
