#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <vector>

/// The Mixture-of-Experts operators of an Ascend NPU, by their names without npu_, on any OpenCL device.
///
/// Every operator X has a struct XArgs and these functions. The members of XArgs have the names and the defaults of the
/// operator's parameters.
///   infer(args)                    sets dtype and shape of every output; an output that stays absent is not written
///   workspace_bytes(args, device)  device memory that the call needs as scratch, after `infer`
///   x(stream, args, call)          checks everything, then enqueues; never waits for the device
/// Tensors are contiguous unless a field says otherwise. An absent optional tensor is the operator's None. Rows outside
/// the part that an operator defines are neither read nor written. Tensors that are written (outputs, fault, workspace)
/// overlap no other tensor of the call; inputs may overlap inputs.
/// Errors: invalid_argument  before anything is enqueued; the message says what was expected and what came
///         unsupported       the operator has the feature, but this library does not; OPERATORS.md lists these cases
/// Source: op-plugin and vllm-ascend; the goldens of the tests say where each number comes from
namespace moecl::npu {

/// What happens with data on the device for which the operator defines no result.
enum class Validation : std::uint8_t {
  strict,     ///< data for which the NPU's behaviour is undefined sets the fault word
  compatible  ///< such data has the same effect as on the NPU, where that is known; accesses stay within the tensors
};

/// What happens to output elements outside the defined part.
enum class Tail : std::uint8_t {
  untouched,  ///< the old contents stay, as on the NPU
  poison,     ///< NaN, or bytes of 0x5A in integers: exposes a consumer that reads these elements
  zero
};

/// How an operator is called.
struct Call {
  /// At least workspace_bytes. Starts at a multiple of WorkspaceLayout::alignment_bytes. Only the stream uses it until
  /// the operator completes.
  BufferView workspace;
  Validation validation = Validation::strict;
  Tail tail = Tail::untouched;
  /// optional in/out. Shape: [4] i32 {FaultCode, where, value, -}. The first fault found is written to it, if its code
  /// is 0. Without `fault`, or in compatible mode, the data on the device is not checked.
  TensorView fault;
  Submit submit;
};

/// How a number between two codes is rounded. In order: to the nearest, ties to even; to the nearest, ties away from
/// zero; down; up; towards zero. Each operator says which modes it has.
enum class RoundMode : std::uint8_t { rint, round, floor, ceil, trunc };

/// A list of tensors, where the operator takes one.
using TensorList = std::vector<TensorView>;

}  // namespace moecl::npu
