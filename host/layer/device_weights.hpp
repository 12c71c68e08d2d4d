#pragma once
// Weight matrices of some experts in device memory, plain or quantized: codes stay packed, there is no second copy.
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
  /// Memory for `experts` matrices [n, k], and for a bias of each row if they are `biased`. Where `residency` has fewer
  /// slots, they stand in the host's memory, and those of products in device memory.
  DeviceWeights(StreamView stream, const WeightFormat& format, std::int64_t experts, std::int64_t n, std::int64_t k,
                bool biased = false, const CacheOptions& residency = {});

  /// Errors: invalid_argument  such stacks, plain ones as `plain`, are not what the memory is for; `what` names them
  void expect(const std::vector<MatrixStack>& stacks, DType plain, const char* what) const;
  /// Fills an expert. Lifetime: as WeightUpload::pack
  void pack(WeightUpload& upload, std::int64_t expert, const MatrixStack& stack);
  /// The same of plain matrices, in the format that `quantizer` makes. Errors: invalid_data  as DeviceQuantizer
  void pack(WeightUpload& upload, DeviceQuantizer& quantizer, std::int64_t expert, const MatrixStack& stack);
  /// Its biases: one for each matrix of the stack, [1, rows].
  void pack_bias(WeightUpload& upload, std::int64_t expert, const std::vector<HostMatrix>& biases);

  /// Where one expert's bytes stand: codes, scales, zero points, group index, scales of columns, bias, each if it is
  /// there. The first four are in the host's memory where experts have a budget.
  std::vector<BufferView> parts(std::int64_t expert) const;
  /// An expert's matrix and bias as plain numbers. Shapes: [n, k], and [n] or none. Stops the host
  struct Plain {
    std::vector<float> matrix, bias;
  };
  Plain plain(StreamView stream, std::int64_t expert) const;

  bool present() const noexcept { return read().weights.present(); }
  bool biased() const noexcept { return bias_.present(); }
  CodeType type() const noexcept { return read().weights.type; }
  std::string format() const { return format_.describe(); }
  PanelLayout layout() const noexcept { return read().weights.layout; }
  /// Sets the operands of a product that these weights are.
  void multiply(grouped_gemm::Args& args) const;
  /// The same of experts [first, first + count), which were brought to slots that `claimed` gave. @param args  whose
  /// first_expert is that of the segment
  void multiply(grouped_gemm::Args& args, const ExpertCache& claimed, std::int64_t first, std::int64_t count) const;
  /// Whether experts have a budget of device memory.
  bool limited() const noexcept { return cache_.present(); }
  /// Whether they take turns in slots of it.
  bool in_slots() const noexcept { return limited() && !cache_.in_place(); }
  const ExpertCache& cache() const noexcept { return cache_; }
  /// Of the device; what stands in the host's memory apart.
  std::uint64_t size_bytes() const noexcept;

 private:
  /// What an expert's columns share and what stands beside every panel.
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
  /// Where experts are packed, all of them.
  const Memory& home() const noexcept { return limited() ? host_ : device_; }
  /// Where products read them.
  const Memory& read() const noexcept { return in_slots() ? device_ : home(); }
  /// What belongs to one of as many experts.
  BufferView of_expert(const Buffer& all, std::int64_t expert) const;

  WeightFormat format_;
  Memory device_, host_;  ///< the second absent without a budget, the first where products read the second
  Buffer column_scale_, bias_memory_;
  ExpertCache cache_;
  TensorView column_scales_;  ///< absent, or [experts, n] f32
  TensorView bias_;           ///< the same
};

}  // namespace moecl
