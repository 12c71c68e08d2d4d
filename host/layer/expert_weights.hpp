#pragma once
// The routed experts' weights in device memory.
#include <moecl/layer_options.hpp>
#include <moecl/moe_weights.hpp>

#include <vector>

#include "host/layer/device_weights.hpp"

namespace moecl {

/// Weights of the experts from `first_expert` on.
struct ExpertSegment {
  DeviceWeights gate_up;  ///< N = 2I (gate, then up), K = H
  DeviceWeights down;     ///< N = H, K = I
  std::int32_t first_expert = 0;
  std::int64_t experts = 0;
};

/// Rows that a product multiplies.
struct RowKind {
  DType dtype;
  std::int64_t group = 0;  ///< columns that share a scale; 0: all, or none has one
};

/// Memory for the experts in as few segments as the device's largest allocation allows.
/// Errors: unsupported  one expert's matrix alone exceeds it; invalid_argument  experts differ in their format
/// Those of a budget are one segment.
/// @param quantize  What plain ones are to be quantized to; plain: not at all
/// @param rows      What the experts' products multiply with them, which decides on the layout of their panels
/// @param layout    Of their panels, if it is given. Errors: unsupported  no kernel there reads it; invalid_argument
///                  such weights cannot stand so
/// Errors also: invalid_argument  a budget below one expert
std::vector<ExpertSegment> allocate_experts(StreamView stream, const MoeShape& shape,
                                            const std::vector<ExpertMatrices>& experts, DType dtype,
                                            const OperandQuant& quantize, RowKind rows, const ExpertBudget& budget = {},
                                            std::optional<PanelLayout> layout = {});
/// Errors: invalid_argument  these are stored otherwise than what the segments are for
void expect_experts(const std::vector<ExpertSegment>& segments, const std::vector<ExpertMatrices>& experts, DType dtype,
                    const OperandQuant& quantize);
/// Writes experts of that form where the old ones are, quantized by `quantizer` if there is one.
void load_experts(WeightUpload& upload, std::vector<ExpertSegment>& segments,
                  const std::vector<ExpertMatrices>& experts, DeviceQuantizer* quantizer, const LoadProgress& progress);

/// One of them.
void load_expert(WeightUpload& upload, std::vector<ExpertSegment>& segments, std::int64_t number,
                 const ExpertMatrices& expert, DeviceQuantizer* quantizer);

/// The experts' weights as CLBlast's batched product reads them, row-major f32.
struct BatchedExpertWeights {
  Buffer gate_up_memory, down_memory;
  TensorView gate_up;  ///< Shape: [E, 2I, H], of ungated experts [E, I, H]
  TensorView down;     ///< Shape: [E, H, I]
};

/// Errors: invalid_argument  the experts together exceed the device's largest allocation
BatchedExpertWeights allocate_batched_experts(StreamView stream, const MoeShape& shape);
/// Plain matrices whose rows are contiguous.
void load_experts(WeightUpload& upload, const BatchedExpertWeights& weights, const std::vector<ExpertMatrices>& experts,
                  const LoadProgress& progress);
void load_expert(WeightUpload& upload, const BatchedExpertWeights& weights, std::int64_t number,
                 const ExpertMatrices& expert);

}  // namespace moecl
