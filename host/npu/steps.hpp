#pragma once
// How an operator is composed of kernels. A composition is a function of (Steps&, args) that runs twice: once to check
// every step and to size the workspace, once to enqueue. Both passes see the same code, so they cannot disagree.
#include <moecl/npu.hpp>
#include <moecl/workspace.hpp>

#include <initializer_list>
#include <utility>

#include "runtime/check.hpp"

namespace moecl::npu {

/// Bits of the indices that an NPU sorts by: integers that f32 holds exactly.
inline constexpr std::int32_t index_bits = 24;

class Steps {
 public:
  /// The checking pass.
  Steps(const Device& device, Validation validation, TensorView fault)
      : device_(device), validation_(validation), fault_(fault) {}
  /// The enqueuing pass.
  Steps(StreamView stream, const Call& call);

  const DeviceCaps& caps() const { return device_.caps; }
  bool strict() const { return validation_ == Validation::strict; }
  /// Where kernels report bad data. Absent in compatible mode, and if the caller gave none.
  TensorView fault() const { return strict() ? fault_ : TensorView(); }
  std::uint64_t workspace_bytes() const { return layout_.total_bytes(); }

  /// Workspace memory that belongs to the operator until its last step. Its contents are undefined.
  BufferView scratch_bytes(std::uint64_t size_bytes);
  TensorView scratch(DType dtype, std::initializer_list<std::int64_t> dims);

  /// Checks or enqueues one kernel operator. `rest` is what its `enqueue` takes after the arguments.
  template <class KernelArgs, class... Rest>
  void run(const KernelArgs& args, const Rest&... rest) {
    if (enqueuing_) return enqueue(stream_, args, rest...);
    if constexpr (requires { reject(args); })
      expect_accepted(reject(args));
    else if constexpr (requires { reject(args, rest..., device_); })
      expect_accepted(reject(args, rest..., device_));
    else
      expect_accepted(reject(args, rest..., {}, device_));
  }
  void copy(const TensorView& from, const TensorView& to);
  /// Fills `view` with a pattern of 32 bits.
  void fill(const TensorView& view, std::uint32_t pattern);
  /// Sets all elements to 0, for every storage type.
  void zero(const TensorView& view) { fill(view, 0); }

 private:
  static void expect_accepted(const std::string& reason) { require(reason.empty(), "{}", reason); }

  const Device& device_;
  Validation validation_;
  TensorView fault_;
  bool enqueuing_ = false;
  StreamView stream_;
  BufferView workspace_;
  WorkspaceLayout layout_;
};

/// [..., n] as a matrix of rows of n elements.
TensorView as_rows(const TensorView& view);
/// The same elements under another shape. Errors: invalid_argument  the view is not contiguous or has other elements
TensorView reshaped(const TensorView& view, std::initializer_list<std::int64_t> dims);
/// Makes `view` a contiguous tensor of this dtype and shape in the same memory, for `infer`.
void set_shape(TensorView& view, DType dtype, const std::vector<std::int64_t>& dims);
std::vector<std::int64_t> shape_of(const TensorView& view);

}  // namespace moecl::npu
