#pragma once
// Weight matrices of some experts in device memory, plain or quantized: codes stay packed, there is no second copy.
#include <moecl/grouped_gemm.hpp>

#include "host/layer/device_quantizer.hpp"
#include "host/layer/weight_format.hpp"
#include "host/layer/weight_upload.hpp"

namespace moecl {

/// The elements of vectors [1, columns], one after the other.
std::vector<float> numbers_of(const std::vector<HostMatrix>& vectors);

class DeviceWeights {
 public:
  DeviceWeights() = default;
  /// Memory for `experts` matrices [n, k], and for a bias of each row if they are `biased`.
  DeviceWeights(StreamView stream, const WeightFormat& format, std::int64_t experts, std::int64_t n, std::int64_t k,
                bool biased = false);

  /// Errors: invalid_argument  such stacks, plain ones as `plain`, are not what the memory is for; `what` names them
  void expect(const std::vector<MatrixStack>& stacks, DType plain, const char* what) const;
  /// Fills an expert. Lifetime: as WeightUpload::pack
  void pack(WeightUpload& upload, std::int64_t expert, const MatrixStack& stack);
  /// The same of plain matrices, in the format that `quantizer` makes. Errors: invalid_data  as DeviceQuantizer
  void pack(WeightUpload& upload, DeviceQuantizer& quantizer, std::int64_t expert, const MatrixStack& stack);
  /// Its biases: one for each matrix of the stack, [1, rows].
  void pack_bias(WeightUpload& upload, std::int64_t expert, const std::vector<HostMatrix>& biases);

  /// Where one expert's bytes stand: codes, scales, zero points, group index, scales of columns, bias, each if it is
  /// there.
  std::vector<BufferView> parts(std::int64_t expert) const;
  /// An expert's matrix and bias as plain numbers. Shapes: [n, k], and [n] or none. Stops the host
  struct Plain {
    std::vector<float> matrix, bias;
  };
  Plain plain(StreamView stream, std::int64_t expert) const;

  bool present() const noexcept { return weights_.present(); }
  bool biased() const noexcept { return bias_.present(); }
  CodeType type() const noexcept { return weights_.type; }
  std::string format() const { return format_.describe(); }
  PanelLayout layout() const noexcept { return weights_.layout; }
  /// Sets the operands of a product that these weights are.
  void multiply(grouped_gemm::Args& args) const;
  std::uint64_t size_bytes() const noexcept;

 private:
  /// What belongs to one of as many experts.
  BufferView of_expert(const Buffer& memory, std::int64_t expert) const;

  WeightFormat format_;
  Buffer codes_, scale_, zero_, group_index_, column_scale_, bias_memory_;
  PackedWeights weights_;
  TensorView column_scales_;  ///< absent, or [experts, n] f32
  TensorView bias_;           ///< the same
};

}  // namespace moecl
