#pragma once
// The weight matrices of some experts in device memory, plain or quantized. Codes stay packed; no plain copy is kept.
#include <moecl/grouped_gemm.hpp>

#include "host/layer/device_quantizer.hpp"
#include "host/layer/expert_cache.hpp"
#include "host/layer/weight_format.hpp"
#include "host/layer/weight_upload.hpp"

namespace moecl {

/// The elements of vectors [1, columns], one after the other.
std::vector<float> numbers_of(const std::vector<HostMatrix>& vectors);

class DeviceWeights {
 public:
  DeviceWeights() = default;
  /// Allocates memory for `experts` matrices [n, k], and for a bias per row if `biased`. If `residency` has fewer slots
  /// than experts, all matrices are in host memory; slots in device memory hold those that products use. With
  /// CacheOptions::in_place, products read host memory.
  DeviceWeights(StreamView stream, const WeightFormat& format, std::int64_t experts, std::int64_t n, std::int64_t k,
                bool biased = false, const CacheOptions& residency = {});

  /// Errors: invalid_argument  this memory is for another format than `stacks` have; `what` names them
  /// @param plain  The dtype as which plain matrices are stored
  void expect(const std::vector<MatrixStack>& stacks, DType plain, const char* what) const;
  /// Packs the weights of one expert. Lifetime: as WeightUpload::pack
  void pack(WeightUpload& upload, std::int64_t expert, const MatrixStack& stack);
  /// The same for plain matrices, which `quantizer` quantizes. Errors: invalid_data  as DeviceQuantizer
  void pack(WeightUpload& upload, DeviceQuantizer& quantizer, std::int64_t expert, const MatrixStack& stack);
  /// Packs the biases of one expert: one per matrix of its stack, [1, rows].
  void pack_bias(WeightUpload& upload, std::int64_t expert, const std::vector<HostMatrix>& biases);

  /// The memory of one expert's parts: codes, scales, zero points, group index, column scales, bias. Absent parts are
  /// left out. If experts have a budget, the first four are in host memory.
  std::vector<BufferView> parts(std::int64_t expert) const;
  /// One expert's matrix [n, k], and its bias [n] or none, as plain numbers. Stops the host
  struct Plain {
    std::vector<float> matrix, bias;
  };
  Plain plain(StreamView stream, std::int64_t expert) const;

  bool present() const noexcept { return read().weights.present(); }
  bool biased() const noexcept { return bias_.present(); }
  CodeType type() const noexcept { return read().weights.type; }
  std::string format() const { return format_.describe(); }
  PanelLayout layout() const noexcept { return read().weights.layout; }
  /// Sets the operands of `args` that describe these weights.
  void multiply(grouped_gemm::Args& args) const;
  /// The same for experts [first, first + count), which are in the slots that `claimed` gave them.
  /// @param args  On entry, its first_expert is that of the segment
  void multiply(grouped_gemm::Args& args, const ExpertCache& claimed, std::int64_t first, std::int64_t count) const;
  /// Whether the experts have a budget of device memory.
  bool limited() const noexcept { return cache_.present(); }
  /// Whether they take turns in slots of device memory.
  bool in_slots() const noexcept { return limited() && !cache_.in_place(); }
  const ExpertCache& cache() const noexcept { return cache_; }
  /// Device memory only; host memory is not counted.
  std::uint64_t size_bytes() const noexcept;

 private:
  /// Codes, and what quantized codes need beside them: group scales, zero points, group index.
  struct Memory {
    Buffer codes, scale, zero, group_index;
    PackedWeights weights;

    std::uint64_t size_bytes() const noexcept {
      return codes.size_bytes() + scale.size_bytes() + zero.size_bytes() + group_index.size_bytes();
    }
  };
  template <class Allocate>
  static Memory allocate(const WeightFormat& format, std::int64_t experts, std::int64_t n, std::int64_t k,
                         const Allocate& of_bytes);
  /// The memory that holds all experts.
  const Memory& home() const noexcept { return limited() ? host_ : device_; }
  /// The memory that products read.
  const Memory& read() const noexcept { return in_slots() ? device_ : home(); }
  /// The part of `all` that belongs to `expert`.
  BufferView of_expert(const Buffer& all, std::int64_t expert) const;

  WeightFormat format_;
  Memory device_, host_;  ///< host_: absent without a budget; device_: absent if products read host_
  Buffer column_scale_, bias_memory_;
  ExpertCache cache_;
  TensorView column_scales_;  ///< absent, or [experts, n] f32
  TensorView bias_;           ///< absent, or [experts, n] f32
};

}  // namespace moecl
