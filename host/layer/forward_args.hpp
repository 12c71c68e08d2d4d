#pragma once
// What the forward passes of MoeLayer and ParallelLayer do alike with their arguments.
#include <moecl/moe_forward.hpp>

#include "host/layer/layer_parts.hpp"

namespace moecl {

/// Tokens [first, first + count) of them. Counts of experts, workspace and fault word stay
MoeForward part_of(const MoeForward& args, std::int64_t first, std::int64_t count);

/// Whether `out` is x.
bool is_in_place(const MoeForward& args);

/// The arguments with everything of the shape of x by token; an x that nobody needs has no memory, but its shape.
/// @param shape          of the whole layer
/// @param local_experts  those of this rank
/// Errors: invalid_argument  a tensor that does not fit the layer, or that its memory does not hold
MoeForward checked_forward(const MoeForward& args, const MoeShape& shape, const LayerParts& parts,
                           std::int64_t local_experts);

/// The same of tokens whose experts are prefetched: what the experts would take is not looked at.
MoeForward checked_prefetch(const MoeInputs& tokens, const MoeShape& shape, const LayerParts& parts);

/// Errors: invalid_argument  the workspace of a pass does not start at a multiple of its base alignment
void expect_workspace_start(BufferView workspace);

/// Of checked arguments.
/// @param workspace  as much of it as the pass uses
/// Errors: invalid_argument  what the pass writes overlaps something else that it uses
void expect_operands_apart(const MoeForward& args, BufferView workspace = {});

}  // namespace moecl
