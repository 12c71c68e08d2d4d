#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <vector>

/// The operators that an Ascend NPU offers for Mixture-of-Experts, by their names without npu_, on any OpenCL device.
///
/// Every operator X has an XArgs with the operator's parameters by name, at the operator's defaults, and three
/// functions:
///   infer(args)                  sets dtype and shape of every output; one that stays absent is not written
///   workspace_bytes(args, device)  device memory that the call needs as scratch, after `infer`
///   x(stream, args, call)        checks everything, then enqueues; never waits for the device
/// Tensors are contiguous unless a field says otherwise; an absent optional tensor is the operator's None.
/// Rows outside the part that an operator defines are neither read nor written. What is written (outputs, fault,
/// workspace) overlaps nothing else of the call; inputs may overlap inputs.
/// Errors: invalid_argument  before anything is enqueued, with what was expected and what came
///         unsupported       what the operator has and this library has not; OPERATORS.md lists it
/// Source: op-plugin and vllm-ascend; the goldens of the tests say where each number comes from
namespace moecl::npu {

/// What becomes of data on the device that the operator does not define.
enum class Validation : std::uint8_t {
  strict,     ///< data for which the device's behaviour is undefined sets the fault word
  compatible  ///< such data does what it does on the device where that is known, and never leaves the tensors
};

/// What happens to output elements outside the defined part.
enum class Tail : std::uint8_t {
  untouched,  ///< old memory, as on the device
  poison,     ///< NaN, or bytes of 0x5A in integers: a consumer that reads them shows
  zero
};

/// How an operator is called.
struct Call {
  /// At least workspace_bytes, from a multiple of WorkspaceLayout::alignment_bytes on; the stream's alone until the
  /// operator completes
  BufferView workspace;
  Validation validation = Validation::strict;
  Tail tail = Tail::untouched;
  /// optional in/out. Shape: [4] i32 {FaultCode, where, value, -}: the first fault found, written while the code is 0.
  /// Without it, and when compatible, the data on the device is not checked.
  TensorView fault;
  Submit submit;
};

/// How a number between two codes becomes one: the nearest, halves to even; the nearest, halves away from zero; the
/// lower; the upper; the one nearer to zero. Operators say which they have.
enum class RoundMode : std::uint8_t { rint, round, floor, ceil, trunc };

/// A list of tensors, where the operator takes one.
using TensorList = std::vector<TensorView>;

}  // namespace moecl::npu
