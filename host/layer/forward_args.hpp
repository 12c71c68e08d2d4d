#pragma once
// Checks and cuts the arguments of forward passes, for both MoeLayer and ParallelLayer.
#include <moecl/moe_forward.hpp>

#include "host/layer/layer_parts.hpp"

namespace moecl {

/// The arguments of tokens [first, first + count). Counts of experts, workspace and fault word stay the same.
MoeForward part_of(const MoeForward& args, std::int64_t first, std::int64_t count);

/// Whether `out` is the same tensor as x.
bool is_in_place(const MoeForward& args);

/// Checks the arguments. In the result, tensors of x's shape are [T, *]. If x is absent because nothing reads it, the
/// result has an x with a shape but without memory.
/// @param shape          of the whole layer
/// @param local_experts  number of this rank's experts
/// Errors: invalid_argument  a tensor does not fit the layer, or exceeds its memory
MoeForward checked_forward(const MoeForward& args, const MoeShape& shape, const LayerParts& parts,
                           std::int64_t local_experts);

/// The same for tokens whose experts are prefetched. The input of the experts is not checked.
MoeForward checked_prefetch(const MoeInputs& tokens, const MoeShape& shape, const LayerParts& parts);

/// Errors: invalid_argument  the workspace does not start at a multiple of WorkspaceLayout::base_alignment_bytes
void expect_workspace_start(BufferView workspace);

/// @param args  Checked arguments. @param workspace  The part of it that the pass uses
/// Errors: invalid_argument  a tensor that the pass writes overlaps other memory that it uses
void expect_operands_apart(const MoeForward& args, BufferView workspace = {});

}  // namespace moecl
