#pragma once
// Experts whose weights stand in the host's memory, and take turns in slots of device memory.
#include <moecl/buffer.hpp>
#include <moecl/expert_slots.hpp>
#include <moecl/layer_options.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

struct CacheOptions {
  std::int64_t slots = 0;  ///< 0: as many as experts
  expert_slots::Policy policy = expert_slots::Policy::lru;
  std::vector<float> priorities = {};  ///< of the fixed policy. Shape: [E]; empty: 0
  bool in_place = false;               ///< experts are read in the host's memory: slots only count
};

class ExpertCache {
 public:
  ExpertCache() = default;
  /// @param options  0 < slots < experts
  ExpertCache(StreamView stream, std::int64_t experts, const CacheOptions& options);
  /// What is copied of each expert: [experts] pieces of the host, [slots] on the device. Absent ones are nothing.
  /// @param device  Nothing where experts are read in place
  void add(const Buffer& host, const Buffer& device);

  bool present() const noexcept { return slots_.present(); }
  bool in_place() const noexcept { return in_place_; }
  std::int64_t slot_count() const noexcept { return holders_.shape[0]; }
  /// For grouped_gemm::Args::slots.
  TensorView slots(std::int64_t first, std::int64_t count) const { return part(slots_, first, count); }
  /// Brings those experts of [first, first + count) that have rows. Async: a kernel, and one for each kind of piece
  /// that is copied.
  /// @param row_ends  of all experts here. @param most_used  bounds the experts with rows; at most slots
  void bring(StreamView stream, TensorView row_ends, std::int64_t first, std::int64_t count, std::int64_t most_used,
             bool new_pass) const;
  /// Weights were written: no slot has an expert. Async
  void forget(StreamView stream) const;
  /// Of an expert.
  std::uint64_t expert_bytes() const noexcept;
  /// Stops the host.
  ResidencyCounts counts(StreamView stream) const;

 private:
  struct Piece {
    TensorView host, device;  ///< Shape: [E, bytes], [S, bytes] u8; the second absent where it is read in place
  };
  static TensorView part(const TensorView& of, std::int64_t first, std::int64_t count) {
    const auto bytes = [](std::int64_t elements) {
      return static_cast<std::uint64_t>(elements) * sizeof(std::int32_t);
    };
    return {of.buffer.slice(bytes(first), bytes(count)), DType::i32, {count}};
  }

  Buffer memory_;
  TensorView slots_, holders_, priorities_, fetches_, counters_;
  std::vector<Piece> pieces_;
  expert_slots::Policy policy_ = expert_slots::Policy::lru;
  bool in_place_ = false;
};

}  // namespace moecl
