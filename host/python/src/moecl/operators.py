"""The operators of an Ascend NPU for Mixture-of-Experts, computed by moecl.

Arrays are NumPy's, torch's on the CPU, pyopencl's, or come by DLPack. Results are torch tensors where the first
array is torch's, else NumPy arrays. Commands of other queues that write a pyopencl array must have completed.
OPERATORS.md has the same in a page. Written by `moecl op --python`; a test compares it.
"""
from __future__ import annotations

from typing import NamedTuple, Sequence

from moecl._arrays import Array, Arrays, DType
from moecl._operator import Operator
from moecl._runtime import Communicator, Stream

__all__ = [
    "moe_init_routing",
    "moe_init_routing_v2",
    "moe_compute_expert_tokens",
    "moe_token_permute",
    "moe_token_unpermute",
    "moe_re_routing",
    "moe_finalize_routing",
    "moe_gating_top_k",
    "moe_gating_top_k_softmax",
    "moe_gating_top_k_softmax_v2",
    "dynamic_quant",
    "dynamic_quant_asymmetric",
    "dynamic_mx_quant",
    "swiglu",
    "dequant_swiglu_quant",
    "c_ascend_dequant_swiglu_quant",
    "quant_matmul",
    "grouped_matmul",
    "grouped_matmul_swiglu_quant",
    "grouped_matmul_swiglu_quant_v2",
    "c_ascend_grouped_matmul_swiglu_quant",
    "grouped_matmul_finalize_routing",
    "moe_distribute_dispatch",
    "moe_distribute_dispatch_v2",
    "moe_distribute_combine",
    "moe_distribute_combine_v2",
]


class MoeInitRouting(NamedTuple):
    """What moe_init_routing gives; None where it has no such output."""

    expanded_x: Array
    expanded_row_idx: Array
    expanded_expert_idx: Array


_moe_init_routing = Operator("moe_init_routing", MoeInitRouting, False, "i x", "i row_idx", "i expert_idx",
        "p active_num", "o expanded_x", "o expanded_row_idx", "o expanded_expert_idx")


def moe_init_routing(x: Array, row_idx: Array, expert_idx: Array, *, active_num: int = 0,
        on: Stream | None = None) -> MoeInitRouting:
    """npu_moe_init_routing: rows in expert order, without expert counts.

    Args:
        x: [N, H] f32, f16 or bf16
        row_idx: [N, K] i32, each of [0, N * K) once, column-major
        expert_idx: [N, K] i32 of [0, 2^24)
        active_num: tokens whose worth of rows is made: min(active_num, N) * K
        on: the stream; None: the default one

    Returns:
        expanded_x: [min(active_num, N) * K, H], x's dtype
        expanded_row_idx: [N * K] i32
        expanded_expert_idx: [N * K] i32, ascending

    Rounding: none: rows are moved.
    """
    return _moe_init_routing(on, x, row_idx, expert_idx, active_num)


class MoeInitRoutingV2(NamedTuple):
    """What moe_init_routing_v2 gives; None where it has no such output."""

    expanded_x: Array
    expanded_row_idx: Array
    expert_tokens: Array
    expanded_scale: Array


_moe_init_routing_v2 = Operator("moe_init_routing_v2", MoeInitRoutingV2, False, "i x", "i expert_idx", "i scale",
        "i offset", "p active_num", "p expert_capacity", "p expert_num", "p drop_pad_mode", "p expert_tokens_num_type",
        "p expert_tokens_num_flag", "p quant_mode", "p active_expert_range", "p row_idx_type",
        "p rounding ties_even general_template", "o expanded_x", "o expanded_row_idx", "o expert_tokens",
        "o expanded_scale")


def moe_init_routing_v2(x: Array, expert_idx: Array, *, scale: Array | None = None, offset: Array | None = None,
        active_num: int = -1, expert_capacity: int = -1, expert_num: int = -1, drop_pad_mode: int = 0,
        expert_tokens_num_type: int = 0, expert_tokens_num_flag: bool = False, quant_mode: int = -1,
        active_expert_range: Sequence[int] = (), row_idx_type: int = 0, rounding: str = "ties_even",
        on: Stream | None = None) -> MoeInitRoutingV2:
    """npu_moe_init_routing_v2: rows of a range of experts in expert order, quantized on the way.

    Args:
        x: [N, H] f32, f16 or bf16, or i8 and u8: codes
        expert_idx: [N, K] i32
        scale: optional f32: [N], of codes also u8 [N, S] or [N, S / 2, 2] (quant_mode -1), [1] (0, 7), [range, H] or
            [1, H] (1, 13)
        offset: optional f32: [1] (quant_mode 0; 7 does not read it)
        active_num: most rows that are made; below 1: N * K
        expert_capacity: rows of each expert with drop_pad_mode 1
        expert_num: experts
        drop_pad_mode: 0 dropless, 1 drop and pad (range of all experts)
        expert_tokens_num_type: 0 cumulative, 1 counts, 2 (expert, count) pairs; always counts with drop_pad_mode 1
        expert_tokens_num_flag: whether expert_tokens is written
        quant_mode: -1 none, 0 static int8, 1 int8, 13 int4; MX: 2, 16 e5m2, 3, 17 e4m3, 9 e2m1; by 128: 11 e5m2, 12
            e4m3, by powers of two 4, 14 and 5, 15; HiF8: 6 x, 7 x * scale, 8 by row; 14 on: amax >= 1e-4
        active_expert_range: [first, end) of the experts; empty: all
        row_idx_type: 0 row of each slot, 1 slot of each row (dropless only)
        rounding: how quant_mode 1 rounds halves: ties_even, general_template
        on: the stream; None: the default one

    Returns:
        expanded_x: [rows, H] or [E, capacity, H], x's dtype, i8, or u8: other codes, of fp4 and int4 half of H
        expanded_row_idx: [N * K] i32
        expert_tokens: [range] or [expert_num, 2] i64
        expanded_scale: [rows] f32; MX: [rows, 2 * ceil(H / 64)] u8, e8m0; by 128: [rows, ceil(H / 128)] f32, of 11 and
            12 [rows, ceil(H / 256), 2]

    Rounding: scale amax / largest, x / scale, halves to even, of HiF8 away; quant_mode 0: in f16; MX: 2^ceil(log2(amax
    / largest)), fp4 2^(floor(log2(amax)) - 2); 4, 5, 14, 15: the next power of two.
    Refused: quant_mode 10: no document has it.
    """
    return _moe_init_routing_v2(on, x, expert_idx, scale, offset, active_num, expert_capacity, expert_num,
        drop_pad_mode, expert_tokens_num_type, expert_tokens_num_flag, quant_mode, active_expert_range, row_idx_type,
        rounding)


_moe_compute_expert_tokens = Operator("moe_compute_expert_tokens", None, False, "i sorted_expert_for_source_row",
        "p num_expert", "o total_rows_before_expert")


def moe_compute_expert_tokens(sorted_expert_for_source_row: Array, *, num_expert: int = 0,
        on: Stream | None = None) -> Array:
    """npu_moe_compute_expert_tokens: cumulative rows of the experts from sorted ids.

    Args:
        sorted_expert_for_source_row: [S] i32, ascending
        num_expert: experts
        on: the stream; None: the default one

    Returns:
        total_rows_before_expert: [num_expert] i32

    Rounding: none: integers.
    """
    return _moe_compute_expert_tokens(on, sorted_expert_for_source_row, num_expert)


class MoeTokenPermute(NamedTuple):
    """What moe_token_permute gives; None where it has no such output."""

    permuted_tokens: Array
    sorted_indices: Array


_moe_token_permute = Operator("moe_token_permute", MoeTokenPermute, False, "i tokens", "i indices", "p num_out_tokens",
        "p padded_mode", "o permuted_tokens", "o sorted_indices")


def moe_token_permute(tokens: Array, indices: Array, *, num_out_tokens: int | None = None, padded_mode: bool = False,
        on: Stream | None = None) -> MoeTokenPermute:
    """npu_moe_token_permute: tokens sorted by index.

    Args:
        tokens: [N, H] f32, f16, bf16, or i8 and u8: codes
        indices: [N] or [N, K], i32 or i64 of [0, 2^24)
        num_out_tokens: rows kept; none or 0: all, negative: so many cut off
        padded_mode: false
        on: the stream; None: the default one

    Returns:
        permuted_tokens: [rows, H], tokens' dtype
        sorted_indices: [N * K] i32: the row of each slot

    Rounding: none: rows are moved.
    Refused: padded_mode true: the device's operator does not support it either.
    """
    return _moe_token_permute(on, tokens, indices, num_out_tokens, padded_mode)


_moe_token_unpermute = Operator("moe_token_unpermute", None, False, "i permuted_tokens", "i sorted_indices", "i probs",
        "p padded_mode", "p restore_shape", "o unpermuted_tokens")


def moe_token_unpermute(permuted_tokens: Array, sorted_indices: Array, *, probs: Array | None = None,
        padded_mode: bool = False, restore_shape: Sequence[int] = (), on: Stream | None = None) -> Array:
    """npu_moe_token_unpermute: weighted sum of each token's rows, in token order.

    Args:
        permuted_tokens: [R, H] f32, f16 or bf16
        sorted_indices: [N * K] i32; padded: [R], the token of each row
        probs: optional [N, K] f32, f16 or bf16; padded: R elements
        padded_mode: rows are added to the tokens that sorted_indices names
        restore_shape: [N, H] of padded_mode
        on: the stream; None: the default one

    Returns:
        unpermuted_tokens: [N, H], permuted_tokens' dtype

    Rounding: f32, k ascending, multiply and add rounded one by one, then to the dtype.
    """
    return _moe_token_unpermute(on, permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)


class MoeReRouting(NamedTuple):
    """What moe_re_routing gives; None where it has no such output."""

    permute_tokens: Array
    permute_per_token_scales: Array
    permute_token_idx: Array
    expert_token_num: Array


_moe_re_routing = Operator("moe_re_routing", MoeReRouting, False, "i tokens", "i expert_token_num_per_rank",
        "i per_token_scales", "p expert_token_num_type", "p idx_type", "o permute_tokens", "o permute_per_token_scales",
        "o permute_token_idx", "o expert_token_num")


def moe_re_routing(tokens: Array, expert_token_num_per_rank: Array, *, per_token_scales: Array | None = None,
        expert_token_num_type: int = 1, idx_type: int = 0, on: Stream | None = None) -> MoeReRouting:
    """npu_moe_re_routing: rows by rank, then expert, put by expert, then rank.

    Args:
        tokens: [A, H] f32, f16, bf16, or i8 and u8: codes
        expert_token_num_per_rank: [R, E] i32 or i64, sum A
        per_token_scales: optional [A] f32
        expert_token_num_type: 1: counts
        idx_type: 0: input row of each output row
        on: the stream; None: the default one

    Returns:
        permute_tokens: [A, H], tokens' dtype
        permute_per_token_scales: [A] f32
        permute_token_idx: [A] i32
        expert_token_num: [E], dtype of expert_token_num_per_rank

    Rounding: none: rows are moved.
    Refused: expert_token_num_type 0, idx_type 1: the device's operator has only 1 and 0.
    """
    return _moe_re_routing(on, tokens, expert_token_num_per_rank, per_token_scales, expert_token_num_type, idx_type)


_moe_finalize_routing = Operator("moe_finalize_routing", None, False, "i expanded_permuted_rows", "i skip1", "i skip2",
        "i bias", "i scales", "i expanded_src_to_dst_row", "i export_for_source_row", "p drop_pad_mode", "o out")


def moe_finalize_routing(expanded_permuted_rows: Array, expanded_src_to_dst_row: Array, *, skip1: Array | None = None,
        skip2: Array | None = None, bias: Array | None = None, scales: Array | None = None,
        export_for_source_row: Array | None = None, drop_pad_mode: int = 0, on: Stream | None = None) -> Array:
    """npu_moe_finalize_routing: weighted sum of each token's rows with expert biases and two skips.

    Args:
        expanded_permuted_rows: [R, H] or [E, C, H], f32, f16 or bf16
        skip1: optional [N, H], the rows' dtype
        skip2: optional [N, H], needs skip1
        bias: optional [E, H], the rows' dtype
        scales: optional [N, K] f32, f16 or bf16; absent: 1, K = 1
        expanded_src_to_dst_row: [N * K] i32; modes 1 and 3: -1 is dropped
        export_for_source_row: optional [N, K] i32: experts, needed by bias
        drop_pad_mode: 0, 1 column layout, 2, 3 row layout; 1, 3 drop and pad
        on: the stream; None: the default one

    Returns:
        out: [N, H], the rows' dtype

    Rounding: f32: row + bias, times scale, summed by k, + skip1, + skip2, then to dtype.
    """
    return _moe_finalize_routing(on, expanded_permuted_rows, skip1, skip2, bias, scales, expanded_src_to_dst_row,
        export_for_source_row, drop_pad_mode)


class MoeGatingTopK(NamedTuple):
    """What moe_gating_top_k gives; None where it has no such output."""

    y: Array
    expert_idx: Array
    out: Array


_moe_gating_top_k = Operator("moe_gating_top_k", MoeGatingTopK, False, "i x", "p k", "i bias", "p k_group",
        "p group_count", "p group_select_mode", "p renorm", "p norm_type", "p out_flag", "p routed_scaling_factor",
        "p eps", "o y", "o expert_idx", "o out")


def moe_gating_top_k(x: Array, *, k: int = 1, bias: Array | None = None, k_group: int = 1, group_count: int = 1,
        group_select_mode: int = 0, renorm: int = 0, norm_type: int = 0, out_flag: bool = False,
        routed_scaling_factor: float = 1.0, eps: float = 1e-20, on: Stream | None = None) -> MoeGatingTopK:
    """npu_moe_gating_top_k: scores, groups, the best k experts, weights.

    Args:
        x: [N, E] or [A, B, E] f32, f16 or bf16; E at most 2048
        k: experts a token
        bias: optional [E], a float type: added for the choice only
        k_group: groups that are kept
        group_count: equal runs of more than 2 experts; 1: no groups
        group_select_mode: a group's score: 0 its maximum, 1 its best two summed
        renorm: 1: softmax weights are divided by their sum + eps, as sigmoid ones always are
        norm_type: 0 softmax, 1 sigmoid
        out_flag: whether `out` is wanted
        routed_scaling_factor: multiplies the weights
        eps: added to the sum
        on: the stream; None: the default one

    Returns:
        y: [..., k], x's dtype: weights
        expert_idx: [..., k] i32
        out: as x, f32: scores of all experts without bias; with out_flag

    Rounding: f32 arithmetic, one rounding to x's dtype.
    Refused: norm_type 2: sqrt(softplus) belongs to the hash-routed form, which needs its token tables as well.
    """
    return _moe_gating_top_k(on, x, k, bias, k_group, group_count, group_select_mode, renorm, norm_type, out_flag,
        routed_scaling_factor, eps)


class MoeGatingTopKSoftmax(NamedTuple):
    """What moe_gating_top_k_softmax gives; None where it has no such output."""

    y: Array
    expert_idx: Array
    row_idx: Array


_moe_gating_top_k_softmax = Operator("moe_gating_top_k_softmax", MoeGatingTopKSoftmax, False, "i x", "i finished",
        "p k", "o y", "o expert_idx", "o row_idx")


def moe_gating_top_k_softmax(x: Array, *, finished: Array | None = None, k: int = 1,
        on: Stream | None = None) -> MoeGatingTopKSoftmax:
    """npu_moe_gating_top_k_softmax: softmax, then the best k experts.

    Args:
        x: [N, E] or [A, B, E] f32, f16 or bf16; E at most 1024
        finished: optional, boolean or u8 for each token: its expert_idx become E
        k: experts a token
        on: the stream; None: the default one

    Returns:
        y: [..., k], x's dtype: weights
        expert_idx: [..., k] i32
        row_idx: [..., k] i32: k * N + n

    Rounding: f32 arithmetic, one rounding to x's dtype.
    """
    return _moe_gating_top_k_softmax(on, x, finished, k)


class MoeGatingTopKSoftmaxV2(NamedTuple):
    """What moe_gating_top_k_softmax_v2 gives; None where it has no such output."""

    y: Array
    expert_idx: Array
    softmax_result: Array


_moe_gating_top_k_softmax_v2 = Operator("moe_gating_top_k_softmax_v2", MoeGatingTopKSoftmaxV2, False, "i x", "p k",
        "i finished", "p renorm", "p output_softmax", "o y", "o expert_idx", "o softmax_result")


def moe_gating_top_k_softmax_v2(x: Array, *, k: int = 1, finished: Array | None = None, renorm: int = 0,
        output_softmax: bool = False, on: Stream | None = None) -> MoeGatingTopKSoftmaxV2:
    """npu_moe_gating_top_k_softmax_v2: the best k experts, softmax before or after the choice.

    Args:
        x: [N, E] or [A, B, E] f32, f16 or bf16; E at most 1024
        k: experts a token
        finished: optional, boolean or u8 for each token: its expert_idx become E
        renorm: 1: softmax over the chosen k instead of over all
        output_softmax: whether softmax_result is wanted; with renorm 1 there is none
        on: the stream; None: the default one

    Returns:
        y: [..., k], x's dtype: weights
        expert_idx: [..., k] i32
        softmax_result: as x, f32; with output_softmax

    Rounding: f32 arithmetic, one rounding to x's dtype.
    """
    return _moe_gating_top_k_softmax_v2(on, x, k, finished, renorm, output_softmax)


class DynamicQuant(NamedTuple):
    """What dynamic_quant gives; None where it has no such output."""

    y: Array
    scale: Array


_dynamic_quant = Operator("dynamic_quant", DynamicQuant, False, "i x", "i smooth_scales", "i group_index",
        "p dst_type int8 quint4x2 float8_e4m3fn float8_e5m2", "o y", "o scale",
        "p rounding divide divide_by_mulscale plain_template multirow_template")


def dynamic_quant(x: Array, *, smooth_scales: Array | None = None, group_index: Array | None = None,
        dst_type: str = "int8", rounding: str = "divide", on: Stream | None = None) -> DynamicQuant:
    """npu_dynamic_quant: rows to int8, int4 or fp8, a scale for each.

    Args:
        x: [..., H] f16 or bf16, or beyond the operator f32
        smooth_scales: optional [H], with group_index [G, H]; a float type
        group_index: optional [G] i32 or i64: cumulative row ends
        dst_type: what codes are: int8, quint4x2, float8_e4m3fn, float8_e5m2
        rounding: which template's rounding: divide, divide_by_mulscale, plain_template, multirow_template
        on: the stream; None: the default one

    Returns:
        y: [..., H] i8, of fp8 u8, or [..., H / 8] i32
        scale: x's shape without the last dimension, f32

    Rounding: divide: x / (amax / 127), of fp8 amax / 448 or 57344; halves to even.
    """
    return _dynamic_quant(on, x, smooth_scales, group_index, dst_type, rounding)


class DynamicQuantAsymmetric(NamedTuple):
    """What dynamic_quant_asymmetric gives; None where it has no such output."""

    y: Array
    scale: Array
    offset: Array


_dynamic_quant_asymmetric = Operator("dynamic_quant_asymmetric", DynamicQuantAsymmetric, False, "i x",
        "i smooth_scales", "i group_index", "p dst_type int8 quint4x2 float8_e4m3fn float8_e5m2", "o y", "o scale",
        "o offset")


def dynamic_quant_asymmetric(x: Array, *, smooth_scales: Array | None = None, group_index: Array | None = None,
        dst_type: str = "int8", on: Stream | None = None) -> DynamicQuantAsymmetric:
    """npu_dynamic_quant_asymmetric: rows to int8 or int4, a scale and an offset for each.

    Args:
        x: [..., H] f16 or bf16, or beyond the operator f32
        smooth_scales: optional [H], with group_index [G, H]; a float type
        group_index: optional [G] i32 or i64: cumulative row ends
        dst_type: what codes are: int8, quint4x2, float8_e4m3fn, float8_e5m2
        on: the stream; None: the default one

    Returns:
        y: [..., H] i8, or [..., H / 8] i32
        scale: x's shape without the last dimension, f32
        offset: as scale, f32

    Rounding: x / scale + offset in f32, halves to even.
    Refused: dst_type float8_e4m3fn, float8_e5m2: offsets are of integers.
    """
    return _dynamic_quant_asymmetric(on, x, smooth_scales, group_index, dst_type)


class DynamicMxQuant(NamedTuple):
    """What dynamic_mx_quant gives; None where it has no such output."""

    y: Array
    mxscale: Array


_dynamic_mx_quant = Operator("dynamic_mx_quant", DynamicMxQuant, False, "i x", "p axis",
        "p round_mode rint round floor ceil trunc",
        "p dst_type float4_e2m1fn_x2 float4_e1m2fn_x2 float8_e4m3fn float8_e5m2", "p block_size", "p scale_alg", "o y",
        "o mxscale")


def dynamic_mx_quant(x: Array, *, axis: int = -1, round_mode: str = "rint", dst_type: str = "float4_e2m1fn_x2",
        block_size: int = 32, scale_alg: int = 0, on: Stream | None = None) -> DynamicMxQuant:
    """npu_dynamic_mx_quant: blocks of 32 to fp8 or fp4, a power of two as the scale of each.

    Args:
        x: one to three dimensions; f16 or bf16, or beyond the operator f32
        axis: along which blocks run
        round_mode: rint, for fp4 also floor and round (away from zero): rint, round, floor, ceil, trunc
        dst_type: what codes are: float4_e2m1fn_x2, float4_e1m2fn_x2, float8_e4m3fn, float8_e5m2
        block_size: elements that share a scale: 32
        scale_alg: 0: 2^(floor(log2(amax)) - emax), 1 (fp8): 2^ceil(log2(amax / largest))
        on: the stream; None: the default one

    Returns:
        y: x's shape, with half the last dimension for fp4; u8
        mxscale: x's shape with ceil(blocks / 2) at the axis, and 2; u8: e8m0

    Rounding: round_mode; codes saturate.
    Refused: block_size other than 32: no kernel has other blocks.
    Refused: x of more than three dimensions: a tensor has at most four, and mxscale has one more than x.
    """
    return _dynamic_mx_quant(on, x, axis, round_mode, dst_type, block_size, scale_alg)


_swiglu = Operator("swiglu", None, False, "i x", "p dim", "o y")


def swiglu(x: Array, *, dim: int = -1, on: Stream | None = None) -> Array:
    """npu_swiglu: swish of one half of x times the other half.

    Args:
        x: [..., 2D, ...] f32, f16 or bf16
        dim: dimension that is halved; negative counts from the last
        on: the stream; None: the default one

    Returns:
        y: [..., D, ...], x's dtype

    Rounding: f32 arithmetic, one rounding to x's dtype.
    """
    return _swiglu(on, x, dim)


class DequantSwigluQuant(NamedTuple):
    """What dequant_swiglu_quant gives; None where it has no such output."""

    y: Array
    scale: Array


_dequant_swiglu_quant = Operator("dequant_swiglu_quant", DequantSwigluQuant, False, "i x", "i weight_scale",
        "i activation_scale", "i bias", "i quant_scale", "i quant_offset", "i group_index", "p activate_left",
        "p quant_mode", "p dst_type int8 float8_e4m3fn float8_e5m2", "p round_mode rint round floor ceil trunc",
        "p activate_dim", "p swiglu_mode", "p clamp_limit", "p glu_alpha", "p glu_bias", "o y", "o scale")


def dequant_swiglu_quant(x: Array, *, weight_scale: Array | None = None, activation_scale: Array | None = None,
        bias: Array | None = None, quant_scale: Array | None = None, quant_offset: Array | None = None,
        group_index: Array | None = None, activate_left: bool = False, quant_mode: int = 0, dst_type: str = "int8",
        round_mode: str = "rint", activate_dim: int = -1, swiglu_mode: int = 0, clamp_limit: float = 7.0,
        glu_alpha: float = 1.702, glu_bias: float = 1.0, on: Stream | None = None) -> DequantSwigluQuant:
    """npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize.

    Args:
        x: [..., 2H] i32, f16, bf16 or f32
        weight_scale: optional, required for i32: [2H] or [1, 2H], with groups [G, 2H]; f32
        activation_scale: optional, for i32: one f32 for each row, [T] or [T, 1]
        bias: optional, for i32: [2H] or [1, 2H], i32 or a float type; ignored with group_index
        quant_scale: optional, required for quant_mode 0: [H], [1, H], [1] or [G, H] f32
        quant_offset: optional, for quant_mode 0: as quant_scale
        group_index: optional [G] i32 or i64: counts of rows
        activate_left: swiglu_mode 0: the left half is activated, else the right one
        quant_mode: 0 static, 1 dynamic
        dst_type: type of y: int8, float8_e4m3fn, float8_e5m2
        round_mode: rounding of y: rint, round, floor, ceil, trunc
        activate_dim: dimension that is halved
        swiglu_mode: 0 plain, 1 clamped and interleaved, 2 clamped halves
        clamp_limit: swiglu_mode 1 and 2; above 0
        glu_alpha: swiglu_mode 1 and 2
        glu_bias: swiglu_mode 1 and 2
        on: the stream; None: the default one

    Returns:
        y: [..., H] i8
        scale: x's shape without the last dimension, f32; with quant_mode 1

    Rounding: dynamic: v / (amax * (1 / 127)); static: v / quant_scale + quant_offset; halves to even.
    Refused: dst_type float8_e4m3fn, float8_e5m2: A5's; npu_dynamic_mx_quant makes fp8 codes.
    Refused: round_mode other than rint: int8 codes are rounded to nearest even by every caller known.
    Refused: activate_dim other than the last: rows are what experts have.
    """
    return _dequant_swiglu_quant(on, x, weight_scale, activation_scale, bias, quant_scale, quant_offset, group_index,
        activate_left, quant_mode, dst_type, round_mode, activate_dim, swiglu_mode, clamp_limit, glu_alpha, glu_bias)


class CAscendDequantSwigluQuant(NamedTuple):
    """What c_ascend_dequant_swiglu_quant gives; None where it has no such output."""

    y: Array
    scale: Array


_c_ascend_dequant_swiglu_quant = Operator("c_ascend_dequant_swiglu_quant", CAscendDequantSwigluQuant, False, "i x",
        "i weight_scale", "i activation_scale", "i bias", "i quant_scale", "i quant_offset", "i group_index",
        "p activate_left", "p quant_mode", "p swiglu_mode", "p clamp_limit", "p glu_alpha", "p glu_bias", "o y",
        "o scale")


def c_ascend_dequant_swiglu_quant(x: Array, *, weight_scale: Array | None = None, activation_scale: Array | None = None,
        bias: Array | None = None, quant_scale: Array | None = None, quant_offset: Array | None = None,
        group_index: Array | None = None, activate_left: bool = True, quant_mode: int = 0, swiglu_mode: int = 0,
        clamp_limit: float = 0.0, glu_alpha: float = 1.0, glu_bias: float = 0.0,
        on: Stream | None = None) -> CAscendDequantSwigluQuant:
    """_C_ascend.npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize, as vllm-ascend has it.

    Args:
        x: [..., 2H] i32, f16, bf16 or f32
        weight_scale: optional, required for i32: [2H] or [1, 2H], with groups [G, 2H]; f32
        activation_scale: optional, for i32: one f32 for each row, [T] or [T, 1]
        bias: optional, for i32: [2H] or [1, 2H], i32 or a float type; ignored with group_index
        quant_scale: optional, required for quant_mode 0: [H], [1, H], [1] or [G, H] f32
        quant_offset: optional, for quant_mode 0: as quant_scale
        group_index: optional [G] i32 or i64: counts of rows
        activate_left: the left half is activated, else the right one
        quant_mode: 0 static, 1 dynamic
        swiglu_mode: 0 plain, 1 clamped; both on halves
        clamp_limit: swiglu_mode 1; 0 or less: none
        glu_alpha: swiglu_mode 1
        glu_bias: swiglu_mode 1
        on: the stream; None: the default one

    Returns:
        y: [..., H] i8
        scale: x's shape without the last dimension, f32; with quant_mode 1

    Rounding: dynamic: v / (amax * (1 / 127)); static: v / quant_scale + quant_offset; halves to even.
    """
    return _c_ascend_dequant_swiglu_quant(on, x, weight_scale, activation_scale, bias, quant_scale, quant_offset,
        group_index, activate_left, quant_mode, swiglu_mode, clamp_limit, glu_alpha, glu_bias)


_quant_matmul = Operator("quant_matmul", None, False, "i x1", "i x2", "i scale", "i offset", "i pertoken_scale",
        "i bias", "p output_dtype", "o y")


def quant_matmul(x1: Array, x2: Array, scale: Array, *, offset: Array | None = None,
        pertoken_scale: Array | None = None, bias: Array | None = None, output_dtype: DType | None = None,
        on: Stream | None = None) -> Array:
    """npu_quant_matmul: i8 x i8 or int4, dequantized or requantized.

    Args:
        x1: [..., M, K] i8
        x2: [K, N] i8, or int4 in i32
        scale: [1] or [N]; f32, f16, bf16 or 64-bit; not used by an i32 output
        offset: optional [1] or [N] f32, of an i8 output
        pertoken_scale: optional [M] f32
        bias: optional [N]: i32 added to the sums, f32, f16 or bf16 added after the scales
        output_dtype: i8 if none, f16, bf16, f32, or i32: the bare sums
        on: the stream; None: the default one

    Returns:
        y: [..., M, N]

    Rounding: sums exact in int32, scales in f32, one rounding to the output's type.
    Refused: fp8, fp4 and MX types: A5's; npu_grouped_matmul takes MX codes.
    Refused: x1 of int4 in i32: no scheme quantizes activations to int4.
    Refused: batches of x2: an MoE layer has none; experts are groups of grouped_matmul.
    """
    return _quant_matmul(on, x1, x2, scale, offset, pertoken_scale, bias, output_dtype)


_grouped_matmul = Operator("grouped_matmul", None, False, "i x", "i weight", "i bias", "i scale", "i offset",
        "i antiquant_scale", "i antiquant_offset", "i per_token_scale", "i group_list", "p split_item", "p group_type",
        "p group_list_type", "p act_type", "p output_dtype", "p x_dtype none e4m3 e5m2 e2m1 float8_e8m0fnu",
        "p weight_dtype none e4m3 e5m2 e2m1 float8_e8m0fnu", "p scale_dtype none e4m3 e5m2 e2m1 float8_e8m0fnu",
        "p per_token_scale_dtype none e4m3 e5m2 e2m1 float8_e8m0fnu", "o y")


def grouped_matmul(x: Arrays, weight: Arrays, *, bias: Arrays | None = None, scale: Arrays | None = None,
        offset: Arrays | None = None, antiquant_scale: Arrays | None = None, antiquant_offset: Arrays | None = None,
        per_token_scale: Arrays | None = None, group_list: Array | None = None, split_item: int = 0,
        group_type: int = -1, group_list_type: int = 0, act_type: int = 0, output_dtype: DType | None = None,
        x_dtype: str = "none", weight_dtype: str = "none", scale_dtype: str = "none",
        per_token_scale_dtype: str = "none", on: Stream | None = None) -> Array:
    """npu_grouped_matmul: for each group its rows times its weights.

    Args:
        x: [M, K] f32, f16, bf16, i8 or u8: codes, e2m1 two to a byte along K; or a list
        weight: [E, K, N] or a list of [K, N]; x's dtype, i8, int4 in i32, or u8: codes, e2m1 two to a byte along N
        bias: optional [E, N] or a list of [N]; f32, f16, bf16, or i32 beside integer weights
        scale: optional [E, N], [E, 1, N], [E, G, N] or a list; of integer x. Of codes u8 [E, ceil(K / 64), N, 2]
        offset: optional [E, N] f32 or a list; of an i8 output
        antiquant_scale: optional [E, N], [E, G, N] or a list; of float x
        antiquant_offset: optional, as antiquant_scale
        per_token_scale: optional [M] f32, one for each x. Of codes u8 [M, ceil(K / 64), 2]
        group_list: optional i64 or i32 [E] or [n, 2]; needed for the groups of one x
        split_item: 0, 1: a y for each group; 2, 3: one y
        group_type: -1 x and weight pair up, 0 groups of rows, 2 groups of K
        group_list_type: 0 cumulative, 1 counts, 2 (group, count) pairs
        act_type: 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu
        output_dtype: x's if none; of i8 x also f16, bf16, f32 and i32
        x_dtype: what codes of x mean: none, e4m3, e5m2, e2m1, float8_e8m0fnu
        weight_dtype: what codes of weight mean: none, e4m3, e5m2, e2m1, float8_e8m0fnu
        scale_dtype: what codes of scale mean: none, e4m3, e5m2, e2m1, float8_e8m0fnu
        per_token_scale_dtype: what codes of per_token_scale mean: none, e4m3, e5m2, e2m1, float8_e8m0fnu
        on: the stream; None: the default one

    Returns:
        y: [M, N] each; [E, M, N] with group_type 2

    Rounding: f32 sums (i8: exact in int32), one rounding to the output's type; integer weights beside float x are
    rounded to x's dtype first; MX operands become f32.
    Refused: fp8 codes with other scales than MX blocks of 32, and fp8 or fp4 weights beside float x: no layer asks for
        them.
    Refused: lists, pairs and groups of K of MX operands: no layer asks for them.
    Refused: split_item 0 and 1 with one x and group_type 0: only the device knows the lengths of the outputs.
    Refused: activation_input, activation_quant_scale, activation_quant_offset, tuning_config: the device reserves or
        ignores them.
    Refused: x of int4 in i32: as in npu_quant_matmul.
    """
    return _grouped_matmul(on, x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale,
        group_list, split_item, group_type, group_list_type, act_type, output_dtype, x_dtype, weight_dtype, scale_dtype,
        per_token_scale_dtype)


class GroupedMatmulSwigluQuant(NamedTuple):
    """What grouped_matmul_swiglu_quant gives; None where it has no such output."""

    output: Array
    output_scale: Array


_grouped_matmul_swiglu_quant = Operator("grouped_matmul_swiglu_quant", GroupedMatmulSwigluQuant, False, "i x",
        "i weight", "i group_list", "i weight_scale", "i x_scale", "i bias", "p rounding reciprocal double_rounding",
        "o output", "o output_scale")


def grouped_matmul_swiglu_quant(x: Array, weight: Array, group_list: Array, weight_scale: Array, x_scale: Array, *,
        bias: Array | None = None, rounding: str = "reciprocal", on: Stream | None = None) -> GroupedMatmulSwigluQuant:
    """npu_grouped_matmul_swiglu_quant: grouped product, swish of its gate times up, int8 rows.

    Args:
        x: [M, K] i8
        weight: [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
        group_list: [E] i64 or i32, cumulative
        weight_scale: [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
        x_scale: [M] f32
        bias: optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
        rounding: how rows are quantized: reciprocal, double_rounding
        on: the stream; None: the default one

    Returns:
        output: [M, N / 2] i8
        output_scale: [M] f32

    Rounding: f32 arithmetic; x * (127 / amax), halves to even, scale 1 / (127 / amax).
    Refused: fp8, fp4 and MX types: A5's; npu_grouped_matmul takes MX codes.
    Refused: offset, output_offset: the device has no asymmetric quantization here; it leaves them unused.
    """
    return _grouped_matmul_swiglu_quant(on, x, weight, group_list, weight_scale, x_scale, bias, rounding)


class GroupedMatmulSwigluQuantV2(NamedTuple):
    """What grouped_matmul_swiglu_quant_v2 gives; None where it has no such output."""

    output: Array
    output_scale: Array


_grouped_matmul_swiglu_quant_v2 = Operator("grouped_matmul_swiglu_quant_v2", GroupedMatmulSwigluQuantV2, False, "i x",
        "i weight", "i weight_scale", "i x_scale", "i group_list", "i smooth_scale", "i weight_assist_matrix", "i bias",
        "p dequant_mode", "p quant_mode", "p group_list_type", "p rounding reciprocal double_rounding", "o output",
        "o output_scale")


def grouped_matmul_swiglu_quant_v2(x: Array, weight: Arrays, weight_scale: Arrays, x_scale: Array, group_list: Array, *,
        smooth_scale: Array | None = None, weight_assist_matrix: Arrays | None = None, bias: Array | None = None,
        dequant_mode: int = 0, quant_mode: int = 0, group_list_type: int = 0, rounding: str = "reciprocal",
        on: Stream | None = None) -> GroupedMatmulSwigluQuantV2:
    """npu_grouped_matmul_swiglu_quant_v2: the same with lists of weights, counts and a smooth scale.

    Args:
        x: [M, K] i8
        weight: [E, K, N] i8 or int4 in i32, or a list of [K, N]
        weight_scale: [E, N], [E, 1, N] or [E, G, N], or a list
        x_scale: [M] f32
        group_list: [E] i64 or i32
        smooth_scale: optional [E, N / 2] f32
        weight_assist_matrix: optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
        bias: optional [E, N] i32, of i8 weights
        dequant_mode: 0 a scale for each channel, 1 for each group of K
        quant_mode: 0: a scale for each row
        group_list_type: 0 cumulative, 1 counts
        rounding: how rows are quantized: reciprocal, double_rounding
        on: the stream; None: the default one

    Returns:
        output: [M, N / 2] i8
        output_scale: [M] f32

    Rounding: f32 arithmetic; x * (127 / amax), halves to even, scale 1 / (127 / amax).
    Refused: dequant_mode 2, quant_mode 2: MX types are A5's; npu_grouped_matmul takes them.
    Refused: dequant_dtype, quant_dtype, tuning_config: f32 and i8 are the only ones; the device ignores the last.
    """
    return _grouped_matmul_swiglu_quant_v2(on, x, weight, weight_scale, x_scale, group_list, smooth_scale,
        weight_assist_matrix, bias, dequant_mode, quant_mode, group_list_type, rounding)


class CAscendGroupedMatmulSwigluQuant(NamedTuple):
    """What c_ascend_grouped_matmul_swiglu_quant gives; None where it has no such output."""

    output: Array
    output_scale: Array


_c_ascend_grouped_matmul_swiglu_quant = Operator("c_ascend_grouped_matmul_swiglu_quant",
        CAscendGroupedMatmulSwigluQuant, False, "i x", "i weight", "i bias", "i group_list", "i weight_scale",
        "i x_scale", "p swiglu_limit", "p rounding reciprocal double_rounding", "o output", "o output_scale")


def c_ascend_grouped_matmul_swiglu_quant(x: Array, weight: Array, group_list: Array, weight_scale: Array,
        x_scale: Array, *, bias: Array | None = None, swiglu_limit: float = 0.0, rounding: str = "reciprocal",
        on: Stream | None = None) -> CAscendGroupedMatmulSwigluQuant:
    """_C_ascend.grouped_matmul_swiglu_quant: vllm-ascend's form: the activation may be clamped.

    Args:
        x: [M, K] i8
        weight: [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
        bias: optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
        group_list: [E] i64 or i32, cumulative
        weight_scale: [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
        x_scale: [M] f32
        swiglu_limit: above 0: gate at most this, up within plus and minus this
        rounding: how rows are quantized: reciprocal, double_rounding
        on: the stream; None: the default one

    Returns:
        output: [M, N / 2] i8
        output_scale: [M] f32

    Rounding: f32 arithmetic; x * (127 / amax), halves to even, scale 1 / (127 / amax).
    Refused: fp8, fp4 and MX types: A5's; npu_grouped_matmul takes MX codes.
    """
    return _c_ascend_grouped_matmul_swiglu_quant(on, x, weight, bias, group_list, weight_scale, x_scale, swiglu_limit,
        rounding)


_grouped_matmul_finalize_routing = Operator("grouped_matmul_finalize_routing", None, False, "i x", "i weight",
        "i group_list", "i scale", "i bias", "i pertoken_scale", "i shared_input", "i logit", "i row_index", "p dtype",
        "p shared_input_weight", "p shared_input_offset", "p output_bs", "p group_list_type", "o y")


def grouped_matmul_finalize_routing(x: Array, weight: Array, group_list: Array, scale: Array, row_index: Array, *,
        bias: Array | None = None, pertoken_scale: Array | None = None, shared_input: Array | None = None,
        logit: Array | None = None, dtype: DType | None = None, shared_input_weight: float = 1.0,
        shared_input_offset: int = 0, output_bs: int = 0, group_list_type: int = 1, on: Stream | None = None) -> Array:
    """npu_grouped_matmul_finalize_routing: grouped product whose rows are added to their tokens.

    Args:
        x: [M, K] i8
        weight: [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
        group_list: [E] i64 or i32
        scale: [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
        bias: optional [E, N]; of int4 weights the assist matrix
        pertoken_scale: optional [M] f32
        shared_input: optional [n, N] f32, f16 or bf16
        logit: optional [M] f32, f16 or bf16; 1 without
        row_index: [M] i64 or i32 of [0, output_bs)
        dtype: f32 if none, f16 or bf16
        shared_input_weight: multiplies shared_input
        shared_input_offset: row of y that shared_input starts at
        output_bs: rows of y; 0: M
        group_list_type: 0 cumulative, 1 counts
        on: the stream; None: the default one

    Returns:
        y: [output_bs, N], all of it

    Rounding: f32: rows of a token by ascending index, multiply and add rounded one by one.
    Refused: fp8, fp4 and MX types: A5's; npu_grouped_matmul takes MX codes.
    Refused: offset, tuning_config: of asymmetric int4 weights, which no model here has; the device ignores the last.
    """
    return _grouped_matmul_finalize_routing(on, x, weight, group_list, scale, bias, pertoken_scale, shared_input, logit,
        row_index, dtype, shared_input_weight, shared_input_offset, output_bs, group_list_type)


class MoeDistributeDispatch(NamedTuple):
    """What moe_distribute_dispatch gives; None where it has no such output."""

    expand_x: Array
    dynamic_scales: Array
    expand_idx: Array
    expert_token_nums: Array
    ep_recv_counts: Array
    tp_recv_counts: Array
    expand_scales: Array


_moe_distribute_dispatch = Operator("moe_distribute_dispatch", MoeDistributeDispatch, True, "i x", "i expert_ids",
        "i scales", "i x_active_mask", "i expert_scales", "p group_ep", "p ep_world_size", "p ep_rank_id",
        "p moe_expert_num", "p group_tp", "p tp_world_size", "p tp_rank_id", "p expert_shard_type",
        "p shared_expert_num", "p shared_expert_rank_num", "p global_bs", "p quant_mode", "p expert_token_nums_type",
        "o expand_x", "o dynamic_scales", "o expand_idx", "o expert_token_nums", "o ep_recv_counts", "o tp_recv_counts",
        "o expand_scales")


def moe_distribute_dispatch(on: Communicator, x: Array, expert_ids: Array, *, scales: Array | None = None,
        x_active_mask: Array | None = None, expert_scales: Array | None = None, group_ep: str = "",
        ep_world_size: int = 0, ep_rank_id: int = 0, moe_expert_num: int = 0, group_tp: str = "",
        tp_world_size: int = 0, tp_rank_id: int = 0, expert_shard_type: int = 0, shared_expert_num: int = 1,
        shared_expert_rank_num: int = 0, global_bs: int = 0, quant_mode: int = 0,
        expert_token_nums_type: int = 1) -> MoeDistributeDispatch:
    """npu_moe_distribute_dispatch: the first version of npu_moe_distribute_dispatch_v2.

    Args:
        x: [BS, H] bf16, f16 or f32; of quant_mode 0 also u8 or i8, codes, and i32, eight int4
        expert_ids: [BS, K] i32
        scales: optional [shared_expert_num + E, H] f32, without shared ranks [E, H]: smooth (2, 3); 1 also [H] or [1];
            of codes [BS], [BS, S] f32 or [BS, S] u8
        x_active_mask: optional, reserved: not read
        expert_scales: optional [BS, K] f32
        group_ep: name only: the communicator is the group
        ep_world_size: R, the communicator's size
        ep_rank_id: the communicator's rank
        moe_expert_num: E
        group_tp: name only
        tp_world_size: 0 or 1
        tp_rank_id: 0
        expert_shard_type: 0: shared expert ranks come first
        shared_expert_num: divides shared_expert_rank_num
        shared_expert_rank_num: S, ranks of shared experts
        global_bs: G, a multiple of R; 0: BS * R, the same BS everywhere
        quant_mode: 0 none, 1 static int8 or HiF8, 2 by row int8 or fp8, 3 fp8 by 128 columns, 4 MX fp8 or fp4, 5 MX fp8
            with amax at least 1e-4
        expert_token_nums_type: 0 cumulative, 1 counts
        on: this rank's communicator; all ranks call

    Returns:
        expand_x: [A, H], x's dtype, i8, or u8: other codes, of fp4 [A, H / 2]
        dynamic_scales: [A] f32; 3: [A, ceil(H / 128)]; 4, 5: [A, 2 * ceil(H / 64)] u8; of codes as their scales; not
            with 0 of floats and 1
        expand_idx: [BS * K] i32: earlier pairs of this rank with the same expert
        expert_token_nums: [nl] i64
        ep_recv_counts: [nl * R] i32, cumulative over expert, source rank
        tp_recv_counts: [1] i32, never written; with tp_world_size 1
        expand_scales: [A] f32; with expert_scales

    Rounding: quant_mode 2: x * (largest / amax), scale 1 / (largest / amax); 3: the same product, scale amax * (1 /
    largest); halves to even, of HiF8 away from zero.
    Refused: tp_world_size above 1: reserved upstream.
    """
    return _moe_distribute_dispatch(on, x, expert_ids, scales, x_active_mask, expert_scales, group_ep, ep_world_size,
        ep_rank_id, moe_expert_num, group_tp, tp_world_size, tp_rank_id, expert_shard_type, shared_expert_num,
        shared_expert_rank_num, global_bs, quant_mode, expert_token_nums_type)


class MoeDistributeDispatchV2(NamedTuple):
    """What moe_distribute_dispatch_v2 gives; None where it has no such output."""

    expand_x: Array
    dynamic_scales: Array
    assist_info_for_combine: Array
    expert_token_nums: Array
    ep_recv_counts: Array
    tp_recv_counts: Array
    expand_scales: Array


_moe_distribute_dispatch_v2 = Operator("moe_distribute_dispatch_v2", MoeDistributeDispatchV2, True, "i x",
        "i expert_ids", "i scales", "i x_active_mask", "i expert_scales", "i elastic_info", "i performance_info",
        "p group_ep", "p ep_world_size", "p ep_rank_id", "p moe_expert_num", "p group_tp", "p tp_world_size",
        "p tp_rank_id", "p expert_shard_type", "p shared_expert_num", "p shared_expert_rank_num", "p global_bs",
        "p quant_mode", "p expert_token_nums_type", "p comm_alg default fullmesh fullmesh_v1 fullmesh_v2 hierarchy",
        "p zero_expert_num", "p copy_expert_num", "p const_expert_num", "p ranks_per_server", "p y_dtype", "p x_dtype",
        "p scales_dtype", "o expand_x", "o dynamic_scales", "o assist_info_for_combine", "o expert_token_nums",
        "o ep_recv_counts", "o tp_recv_counts", "o expand_scales", "p y_codes none e2m1 e1m2 hif8")


def moe_distribute_dispatch_v2(on: Communicator, x: Array, expert_ids: Array, *, scales: Array | None = None,
        x_active_mask: Array | None = None, expert_scales: Array | None = None, elastic_info: Array | None = None,
        performance_info: Array | None = None, group_ep: str = "", ep_world_size: int = 0, ep_rank_id: int = 0,
        moe_expert_num: int = 0, group_tp: str = "", tp_world_size: int = 0, tp_rank_id: int = 0,
        expert_shard_type: int = 0, shared_expert_num: int = 1, shared_expert_rank_num: int = 0, global_bs: int = 0,
        quant_mode: int = 0, expert_token_nums_type: int = 1, comm_alg: str = "", zero_expert_num: int = 0,
        copy_expert_num: int = 0, const_expert_num: int = 0, ranks_per_server: int = 0, y_dtype: DType | None = None,
        x_dtype: DType | None = None, scales_dtype: DType | None = None,
        y_codes: str = "none") -> MoeDistributeDispatchV2:
    """npu_moe_distribute_dispatch_v2: tokens to the ranks of their experts, in the order expert, source rank, token.

    Args:
        x: [BS, H] bf16, f16 or f32; of quant_mode 0 also u8 or i8, codes, and i32, eight int4
        expert_ids: [BS, K] i32
        scales: optional [shared_expert_num + E, H] f32, without shared ranks [E, H]: smooth (2, 3); 1 also [H] or [1];
            of codes [BS], [BS, S] f32 or [BS, S] u8
        x_active_mask: optional [BS] bool, true first, or [BS, K]
        expert_scales: optional [BS, K] f32; comm_alg hierarchy needs it
        elastic_info: optional, refused
        performance_info: optional, refused
        group_ep: name only: the communicator is the group
        ep_world_size: R, the communicator's size
        ep_rank_id: the communicator's rank
        moe_expert_num: E
        group_tp: name only
        tp_world_size: 0 or 1
        tp_rank_id: 0
        expert_shard_type: 0: shared expert ranks come first
        shared_expert_num: divides shared_expert_rank_num
        shared_expert_rank_num: S, ranks of shared experts
        global_bs: G, a multiple of R; 0: BS * R, the same BS everywhere
        quant_mode: 0 none, 1 static int8 or HiF8, 2 by row int8 or fp8, 3 fp8 by 128 columns, 4 MX fp8 or fp4, 5 MX fp8
            with amax at least 1e-4
        expert_token_nums_type: 0 cumulative, 1 counts
        comm_alg: how rows travel; all but hierarchy (a token crosses to a server once, and its sum comes back) are
            alike: fullmesh, fullmesh_v1, fullmesh_v2, hierarchy
        zero_expert_num: their ids come after the E experts
        copy_expert_num: their ids come next
        const_expert_num: their ids come last
        ranks_per_server: of hierarchy; 0: as the nodes of the group
        y_dtype: what rows become: i8, f8_e4m3, f8_e5m2, u8 with y_codes; none: by quant_mode
        x_dtype: refused
        scales_dtype: refused
        y_codes: what rows of y_dtype u8 are: none, e2m1, e1m2, hif8
        on: this rank's communicator; all ranks call

    Returns:
        expand_x: [A, H], x's dtype, i8, or u8: other codes, of fp4 [A, H / 2]
        dynamic_scales: [A] f32; 3: [A, ceil(H / 128)]; 4, 5: [A, 2 * ceil(H / 64)] u8; of codes as their scales; not
            with 0 of floats and 1
        assist_info_for_combine: [max(BS * K, 128 * A)] i32: source rank, token, column of each row
        expert_token_nums: [nl] i64
        ep_recv_counts: [nl * R] i32, cumulative over expert, source rank
        tp_recv_counts: [1] i32, never written; with tp_world_size 1
        expand_scales: [A] f32; with expert_scales

    Rounding: quant_mode 2: x * (largest / amax), scale 1 / (largest / amax); 3: the same product, scale amax * (1 /
    largest); halves to even, of HiF8 away from zero.
    Refused: tp_world_size above 1: reserved upstream.
    Refused: elastic_info, performance_info: groups do not shrink; a trace tells the times.
    Refused: hierarchy with shared or special experts: the operator has neither there.
    """
    return _moe_distribute_dispatch_v2(on, x, expert_ids, scales, x_active_mask, expert_scales, elastic_info,
        performance_info, group_ep, ep_world_size, ep_rank_id, moe_expert_num, group_tp, tp_world_size, tp_rank_id,
        expert_shard_type, shared_expert_num, shared_expert_rank_num, global_bs, quant_mode, expert_token_nums_type,
        comm_alg, zero_expert_num, copy_expert_num, const_expert_num, ranks_per_server, y_dtype, x_dtype, scales_dtype,
        y_codes)


_moe_distribute_combine = Operator("moe_distribute_combine", None, True, "i expand_x", "i expert_ids", "i expand_idx",
        "i ep_send_counts", "i expert_scales", "i tp_send_counts", "i x_active_mask", "i activation_scale",
        "i weight_scale", "i group_list", "i expand_scales", "i shared_expert_x", "p group_ep", "p ep_world_size",
        "p ep_rank_id", "p moe_expert_num", "p group_tp", "p tp_world_size", "p tp_rank_id", "p expert_shard_type",
        "p shared_expert_num", "p shared_expert_rank_num", "p global_bs", "p out_dtype", "p comm_quant_mode",
        "p group_list_type", "o out")


def moe_distribute_combine(on: Communicator, expand_x: Array, expert_ids: Array, expand_idx: Array,
        ep_send_counts: Array, expert_scales: Array, *, tp_send_counts: Array | None = None,
        x_active_mask: Array | None = None, activation_scale: Array | None = None, weight_scale: Array | None = None,
        group_list: Array | None = None, expand_scales: Array | None = None, shared_expert_x: Array | None = None,
        group_ep: str = "", ep_world_size: int = 0, ep_rank_id: int = 0, moe_expert_num: int = 0, group_tp: str = "",
        tp_world_size: int = 0, tp_rank_id: int = 0, expert_shard_type: int = 0, shared_expert_num: int = 1,
        shared_expert_rank_num: int = 0, global_bs: int = 0, out_dtype: int = 0, comm_quant_mode: int = 0,
        group_list_type: int = 0) -> Array:
    """npu_moe_distribute_combine: the first version of npu_moe_distribute_combine_v2.

    Args:
        expand_x: [A, H] bf16, f16 or f32
        expert_ids: [BS, K] i32, as given to dispatch
        expand_idx: [BS * K] i32, of dispatch
        ep_send_counts: [nl * R] i32: ep_recv_counts of dispatch
        expert_scales: [BS, K] f32: the router's weights
        tp_send_counts: optional, reserved: not read
        x_active_mask: optional, reserved: not read
        activation_scale: optional, reserved: not read
        weight_scale: optional, reserved: not read
        group_list: optional, reserved: not read
        expand_scales: optional, reserved: not read
        shared_expert_x: optional [BS, H] or [a, b, H], added with weight 1
        group_ep: name only: the communicator is the group
        ep_world_size: R, the communicator's size
        ep_rank_id: the communicator's rank
        moe_expert_num: E
        group_tp: name only
        tp_world_size: 0 or 1
        tp_rank_id: 0
        expert_shard_type: 0: shared expert ranks come first
        shared_expert_num: divides shared_expert_rank_num
        shared_expert_rank_num: S, ranks of shared experts
        global_bs: G, a multiple of R; 0: BS * R, the same BS everywhere
        out_dtype: reserved
        comm_quant_mode: 0 none, 2 int8, 3 MX e5m2, 4 MX e4m3
        group_list_type: reserved
        on: this rank's communicator; all ranks call

    Returns:
        out: [BS, H], the rows' dtype

    Rounding: f32, multiply then add, once to the rows' dtype; comm_quant_mode 2: amax * (1 / 127) for 8 elements,
    through f16; 3, 4: MX of scale_alg 0.
    Refused: comm_quant_mode 2 with f32 rows: the operator has none.
    Refused: tp_world_size above 1: reserved upstream.
    """
    return _moe_distribute_combine(on, expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, tp_send_counts,
        x_active_mask, activation_scale, weight_scale, group_list, expand_scales, shared_expert_x, group_ep,
        ep_world_size, ep_rank_id, moe_expert_num, group_tp, tp_world_size, tp_rank_id, expert_shard_type,
        shared_expert_num, shared_expert_rank_num, global_bs, out_dtype, comm_quant_mode, group_list_type)


_moe_distribute_combine_v2 = Operator("moe_distribute_combine_v2", None, True, "i expand_x", "i expert_ids",
        "i assist_info_for_combine", "i ep_send_counts", "i expert_scales", "i tp_send_counts", "i x_active_mask",
        "i expand_scales", "i shared_expert_x", "i elastic_info", "i ori_x", "i const_expert_alpha_1",
        "i const_expert_alpha_2", "i const_expert_v", "i performance_info", "p group_ep", "p ep_world_size",
        "p ep_rank_id", "p moe_expert_num", "p group_tp", "p tp_world_size", "p tp_rank_id", "p expert_shard_type",
        "p shared_expert_num", "p shared_expert_rank_num", "p global_bs", "p comm_quant_mode",
        "p comm_alg default fullmesh fullmesh_v1 fullmesh_v2 hierarchy", "p zero_expert_num", "p copy_expert_num",
        "p const_expert_num", "p ranks_per_server", "o out")


def moe_distribute_combine_v2(on: Communicator, expand_x: Array, expert_ids: Array, assist_info_for_combine: Array,
        ep_send_counts: Array, expert_scales: Array, *, tp_send_counts: Array | None = None,
        x_active_mask: Array | None = None, expand_scales: Array | None = None, shared_expert_x: Array | None = None,
        elastic_info: Array | None = None, ori_x: Array | None = None, const_expert_alpha_1: Array | None = None,
        const_expert_alpha_2: Array | None = None, const_expert_v: Array | None = None,
        performance_info: Array | None = None, group_ep: str = "", ep_world_size: int = 0, ep_rank_id: int = 0,
        moe_expert_num: int = 0, group_tp: str = "", tp_world_size: int = 0, tp_rank_id: int = 0,
        expert_shard_type: int = 0, shared_expert_num: int = 1, shared_expert_rank_num: int = 0, global_bs: int = 0,
        comm_quant_mode: int = 0, comm_alg: str = "", zero_expert_num: int = 0, copy_expert_num: int = 0,
        const_expert_num: int = 0, ranks_per_server: int = 0) -> Array:
    """npu_moe_distribute_combine_v2: expert rows back to their tokens, weighted and summed in column order.

    Args:
        expand_x: [A, H] bf16, f16 or f32
        expert_ids: [BS, K] i32, as given to dispatch
        assist_info_for_combine: [3 * rows or more] i32, of dispatch
        ep_send_counts: [nl * R] i32: ep_recv_counts of dispatch
        expert_scales: [BS, K] f32: the router's weights
        tp_send_counts: optional, reserved: not read
        x_active_mask: optional, as given to dispatch
        expand_scales: optional [A] f32, for comm_alg hierarchy
        shared_expert_x: optional [BS, H] or [a, b, H], added with weight 1
        elastic_info: optional, refused
        ori_x: optional [BS, H], for copy and constant experts
        const_expert_alpha_1: optional [const_expert_num, H] or [const_expert_num]
        const_expert_alpha_2: optional [const_expert_num, H] or [const_expert_num]
        const_expert_v: optional [const_expert_num, H]
        performance_info: optional, refused
        group_ep: name only: the communicator is the group
        ep_world_size: R, the communicator's size
        ep_rank_id: the communicator's rank
        moe_expert_num: E
        group_tp: name only
        tp_world_size: 0 or 1
        tp_rank_id: 0
        expert_shard_type: 0: shared expert ranks come first
        shared_expert_num: divides shared_expert_rank_num
        shared_expert_rank_num: S, ranks of shared experts
        global_bs: G, a multiple of R; 0: BS * R, the same BS everywhere
        comm_quant_mode: 0 none, 2 int8, 3 MX e5m2, 4 MX e4m3
        comm_alg: how rows travel; all but hierarchy (a token crosses to a server once, and its sum comes back) are
            alike: fullmesh, fullmesh_v1, fullmesh_v2, hierarchy
        zero_expert_num: their ids come after the E experts
        copy_expert_num: their ids come next
        const_expert_num: their ids come last
        ranks_per_server: of hierarchy; 0: as the nodes of the group
        on: this rank's communicator; all ranks call

    Returns:
        out: [BS, H], the rows' dtype; inactive tokens are not written

    Rounding: f32, multiply then add, once to the rows' dtype; comm_quant_mode 2: amax * (1 / 127) for 8 elements,
    through f16; 3, 4: MX of scale_alg 0; hierarchy: each server's sum is rounded too, or quantized, experts in
    ascending order.
    Refused: comm_quant_mode 2 with f32 rows: the operator has none.
    Refused: tp_world_size above 1: reserved upstream.
    Refused: elastic_info, performance_info: groups do not shrink; a trace tells the times.
    """
    return _moe_distribute_combine_v2(on, expand_x, expert_ids, assist_info_for_combine, ep_send_counts, expert_scales,
        tp_send_counts, x_active_mask, expand_scales, shared_expert_x, elastic_info, ori_x, const_expert_alpha_1,
        const_expert_alpha_2, const_expert_v, performance_info, group_ep, ep_world_size, ep_rank_id, moe_expert_num,
        group_tp, tp_world_size, tp_rank_id, expert_shard_type, shared_expert_num, shared_expert_rank_num, global_bs,
        comm_quant_mode, comm_alg, zero_expert_num, copy_expert_num, const_expert_num, ranks_per_server)
