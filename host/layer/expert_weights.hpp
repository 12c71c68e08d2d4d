#pragma once
// The weights of the routed experts in device memory: packed in segments, or row-major for CLBlast.
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

/// The form of the rows that a product multiplies by the weights.
struct RowKind {
  DType dtype;
  std::int64_t group = 0;  ///< columns that share a scale; 0: all columns of a row, or no scales
};

/// Allocates memory for the experts in as few segments as the device's largest allocation allows. Experts with a budget
/// are one segment.
/// @param quantize  What plain weights are quantized to; plain: they stay plain
/// @param rows      The form of the rows in the experts' products, which decides the layout of the weights' panels
/// @param layout    Overrides the layout of the panels
/// Errors: unsupported  one expert's matrix alone exceeds the largest allocation, or no kernel of the device reads
///         `layout`; invalid_argument  experts differ in their format, such weights cannot have `layout`, or the budget
///         is less than one expert
std::vector<ExpertSegment> allocate_experts(StreamView stream, const MoeShape& shape,
                                            const std::vector<ExpertMatrices>& experts, DType dtype,
                                            const OperandQuant& quantize, RowKind rows, const ExpertBudget& budget = {},
                                            std::optional<PanelLayout> layout = {});
/// Errors: invalid_argument  the segments are for another format than `experts` have
void expect_experts(const std::vector<ExpertSegment>& segments, const std::vector<ExpertMatrices>& experts, DType dtype,
                    const OperandQuant& quantize);
/// Overwrites the segments with experts of the same format. `quantizer`, if not null, quantizes them.
void load_experts(WeightUpload& upload, std::vector<ExpertSegment>& segments,
                  const std::vector<ExpertMatrices>& experts, DeviceQuantizer* quantizer, const LoadProgress& progress);

/// The same for one expert.
void load_expert(WeightUpload& upload, std::vector<ExpertSegment>& segments, std::int64_t number,
                 const ExpertMatrices& expert, DeviceQuantizer* quantizer);

/// The experts' weights for CLBlast's batched product: row-major f32.
struct BatchedExpertWeights {
  Buffer gate_up_memory, down_memory;
  TensorView gate_up;  ///< Shape: [E, 2I, H]; ungated experts: [E, I, H]
  TensorView down;     ///< Shape: [E, H, I]
};

/// Errors: invalid_argument  the experts together exceed the device's largest allocation
BatchedExpertWeights allocate_batched_experts(StreamView stream, const MoeShape& shape);
/// The same for these weights. The matrices must be plain, with contiguous rows.
void load_experts(WeightUpload& upload, const BatchedExpertWeights& weights, const std::vector<ExpertMatrices>& experts,
                  const LoadProgress& progress);
void load_expert(WeightUpload& upload, const BatchedExpertWeights& weights, std::int64_t number,
                 const ExpertMatrices& expert);

}  // namespace moecl
