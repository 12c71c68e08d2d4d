"""torch.ops._C_ascend: vllm-ascend's own operators, by the schemas of its torch_binding.cpp."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from moecl import operators
from moecl.torch_npu import _operators as npu
from moecl.torch_npu._hccl import group_of
from moecl.torch_npu._names import refused

Tensor = torch.Tensor


def grouped_matmul_swiglu_quant(x: Tensor, weight: Tensor, weight_scale: Tensor, x_scale: Tensor, group_list: Tensor, *,
                                bias: Tensor | None = None, offset: Tensor | None = None,
                                swiglu_limit: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped product of codes, clamped swiglu, quantization to int8 rows."""
    weight = weight if weight.dim() == 3 else weight.unsqueeze(0)  # a single expert
    y, scale = operators.c_ascend_grouped_matmul_swiglu_quant(x, weight, group_list, weight_scale, x_scale, bias=bias,
                                                              swiglu_limit=swiglu_limit)
    return y, scale, torch.empty(0)


def grouped_matmul_swiglu_quant_weight_nz_tensor_list(
        x: Tensor, weight: Sequence[Tensor], weight_scale: Sequence[Tensor], x_scale: Tensor, group_list: Tensor, *,
        bias: Any = None, offset: Tensor | None = None, swiglu_limit: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """As grouped_matmul_swiglu_quant, for one stack of weights or a list with a matrix for each expert."""
    return grouped_matmul_swiglu_quant(x, _stacked(weight), _stacked(weight_scale), x_scale, group_list,
                                       bias=None if bias is None else _stacked(bias), offset=offset, swiglu_limit=swiglu_limit)


def _stacked(tensors: Any) -> Tensor:
    if isinstance(tensors, Tensor):
        return tensors
    return tensors[0] if len(tensors) == 1 and tensors[0].dim() > 1 else torch.stack(list(tensors))


def grouped_matmul_swiglu_quant_v2(
        x: Tensor, weight: Sequence[Tensor], weight_scale: Sequence[Tensor], x_scale: Tensor, group_list: Tensor,
        smooth_scale: Tensor | None = None, weight_assist_matrix: Sequence[Tensor] | None = None, bias: Tensor | None = None,
        dequant_mode: int = 0, dequant_dtype: int = 0, quant_mode: int = 0, quant_dtype: int = 0, transpose_weight: bool = False,
        group_list_type: int = 0, tuning_config: Sequence[int] = (), swiglu_limit: float = 0.0) -> tuple[Tensor, Tensor]:
    """As npu_grouped_matmul_swiglu_quant_v2, also with a clamped swiglu for int8 weights, or for int4 weights with
    their assist matrix."""
    if swiglu_limit <= 0:
        return npu.npu_grouped_matmul_swiglu_quant_v2(
            x, weight, weight_scale, x_scale, group_list, smooth_scale=smooth_scale, weight_assist_matrix=weight_assist_matrix,
            bias=bias, dequant_mode=dequant_mode, quant_mode=quant_mode, group_list_type=group_list_type)
    if smooth_scale is not None or bias is not None or quant_mode:
        raise refused("_C_ascend.grouped_matmul_swiglu_quant_v2", "a limit with smooth_scale, bias or quant_mode",
                      "no caller is known")
    ends = group_list.cumsum(0) if group_list_type == 1 else group_list
    return grouped_matmul_swiglu_quant(x, _stacked(weight), _stacked(weight_scale), x_scale, ends, swiglu_limit=swiglu_limit,
                                       bias=None if weight_assist_matrix is None else _stacked(weight_assist_matrix))[:2]


def npu_moe_init_routing_custom(
        x: Tensor, expert_idx: Tensor, *, scale: Tensor | None = None, offset: Tensor | None = None, active_num: int = -1,
        expert_capacity: int = -1, expert_num: int = -1, drop_pad_mode: int = 0, expert_tokens_num_type: int = 0,
        expert_tokens_num_flag: bool = False, quant_mode: int = 0, active_expert_range: Sequence[int] = (),
        row_idx_type: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As npu_moe_init_routing_v2."""
    return npu.npu_moe_init_routing_v2(
        x, expert_idx, scale=scale, offset=offset, active_num=active_num, expert_capacity=expert_capacity,
        expert_num=expert_num, drop_pad_mode=drop_pad_mode, expert_tokens_num_type=expert_tokens_num_type,
        expert_tokens_num_flag=expert_tokens_num_flag, quant_mode=quant_mode, active_expert_range=active_expert_range,
        row_idx_type=row_idx_type)


def moe_gating_top_k(x: Tensor, k: int, k_group: int, group_count: int, group_select_mode: int, renorm: int, norm_type: int,
                     out_flag: bool, routed_scaling_factor: float, eps: float,
                     bias_opt: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores the experts, selects groups, and gives the best k experts and their weights. renorm 1 also divides
    softmax's weights by their sum. Groups may have as few as one expert (group_select_mode 0) or two (1)."""
    if group_count < 1 or x.shape[-1] % group_count:
        raise ValueError(f"_C_ascend.moe_gating_top_k: {x.shape[-1]} experts do not divide into {group_count} groups")
    size = x.shape[-1] // group_count
    if size < 1 + group_select_mode:
        raise ValueError(f"_C_ascend.moe_gating_top_k: groups of {size} with group_select_mode {group_select_mode}")
    small = size < 3 and group_count > 1
    if small:  # moecl's groups have at least three experts: add experts that are never chosen
        bias_opt = _widened(x.new_zeros(x.shape[-1]) if bias_opt is None else bias_opt, size)
        x = _widened(x, size)
    y, ids, out = operators.moe_gating_top_k(
        x, k=k, bias=bias_opt, k_group=k_group, group_count=group_count, group_select_mode=group_select_mode, renorm=renorm,
        norm_type=norm_type, out_flag=out_flag, routed_scaling_factor=routed_scaling_factor, eps=eps)
    if small:
        ids = ids.div(3, rounding_mode="floor") * size + ids % 3
        out = None if out is None else out.unflatten(-1, (-1, 3))[..., :size].flatten(-2)
    return y, ids, torch.empty(0) if out is None else out


def _widened(x: Tensor, size: int) -> Tensor:
    """Pads groups of `size` experts to three, with -inf."""
    return torch.nn.functional.pad(x.unflatten(-1, (-1, size)), (0, 3 - size), value=float("-inf")).flatten(-2)


def moe_gating_top_k_hash(x: Tensor, k: int, bias: Tensor | None = None, input_ids: Tensor | None = None,
                          tid2eid: Tensor | None = None, k_group: int = 1, group_count: int = 1,
                          routed_scaling_factor: float = 1.0, eps: float = 1e-20, group_select_mode: int = 0, renorm: int = 0,
                          norm_type: int = 0, out_flag: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """As moe_gating_top_k, also with norm_type 2, sqrt(softplus), and with experts by token id: tid2eid[input_ids] are
    the chosen experts then, and their weights come from their scores."""
    if tid2eid is None and norm_type != 2:
        return moe_gating_top_k(x, k, k_group, group_count, group_select_mode, renorm, norm_type, out_flag,
                                routed_scaling_factor, eps, bias)
    if group_count > 1:
        raise refused("_C_ascend.moe_gating_top_k_hash", "groups with a table or norm_type 2", "no model has both")
    wide = x.float()
    scores = (wide.softmax(-1), wide.sigmoid(), torch.nn.functional.softplus(wide).sqrt())[norm_type]
    if tid2eid is not None:
        if input_ids is None:
            raise ValueError("_C_ascend.moe_gating_top_k_hash: tid2eid needs input_ids")
        ids = tid2eid[input_ids.long().flatten()].long()[:, :k]
    else:
        ids = torch.argsort(scores if bias is None else scores + bias.float(), dim=-1, descending=True, stable=True)[:, :k]
    weights = scores.gather(-1, ids)
    if norm_type != 0 or renorm == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * routed_scaling_factor).to(x.dtype), ids.to(torch.int32), scores if out_flag else torch.empty(0)


def npu_dequant_swiglu_quant(x: Tensor, *, weight_scale: Tensor | None = None, activation_scale: Tensor | None = None,
                             bias: Tensor | None = None, quant_scale: Tensor | None = None, quant_offset: Tensor | None = None,
                             group_index: Tensor | None = None, activate_left: bool = True, quant_mode: int = 0,
                             swiglu_mode: int = 0, clamp_limit: float = 0.0, glu_alpha: float = 1.0,
                             glu_bias: float = 0.0) -> tuple[Tensor, Tensor]:
    """Dequantize, swiglu, quantize, as in vllm-ascend."""
    y, scale = operators.c_ascend_dequant_swiglu_quant(
        x, weight_scale=weight_scale, activation_scale=activation_scale, bias=bias, quant_scale=quant_scale,
        quant_offset=quant_offset, group_index=group_index, activate_left=activate_left, quant_mode=quant_mode,
        swiglu_mode=swiglu_mode, clamp_limit=clamp_limit, glu_alpha=glu_alpha, glu_bias=glu_bias)
    return y, torch.empty(0) if scale is None else scale


def npu_swiglu_group_quant(x: Tensor, topk_weight: Tensor | None = None, group_index: Tensor | None = None,
                           dst_type: Any = torch.float8_e4m3fn, quant_mode: int = 1, group_size: int = 128,
                           round_scale: bool = False, ue8m0_scale: bool = False, output_origin: bool = False,
                           group_list_type: int = 0, clamp_value: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Clamped swiglu in x's dtype, times topk_weight, quantized to fp8. quant_mode 1: a real scale for each group_size
    columns; 2: as npu_dynamic_mx_quant. Rows past the sum of group_index are not defined."""
    if quant_mode not in (1, 2) or quant_mode == 1 and (round_scale or ue8m0_scale):
        raise refused("_C_ascend.npu_swiglu_group_quant", f"quant_mode {quant_mode}, rounded scales", "no caller is known")
    y = npu.swiglu(x, clamp_value)
    if topk_weight is not None:
        y = (y.float() * topk_weight.float().reshape(-1, 1)).to(y.dtype)
    origin = y if output_origin else torch.empty(0, dtype=x.dtype)
    if quant_mode == 2:
        return *npu.npu_dynamic_mx_quant(y, dst_type=dst_type), origin
    return *npu.fp8_rows(y, getattr(torch, npu.name_of(dst_type)), group_size), origin


def moe_grouped_matmul(x: Tensor, weight: Tensor, group_list: Tensor, split_item: int, group_type: int,
                       group_list_type: int) -> list[Tensor]:
    """For each group, the product of its rows and its weights."""
    return npu.npu_grouped_matmul([x], [weight], group_list=group_list, split_item=split_item, group_type=group_type,
                                  group_list_type=group_list_type)


def _fused(operator: str, x: Tensor, weight1: Tensor, scale1: Any, weight2: Tensor, scale2: Any, ids: Tensor, weights: Tensor,
           where: dict[str, Any], most: int | None, limit: float) -> tuple[Tensor, Tensor]:
    """Dispatch, product, clamped swiglu, product, combine. Rows are int8, or plain for plain weights. Returns the
    result and the number of rows of each expert."""
    quantized = weight1.dtype == torch.int8
    rows, scale, assist, ends, received, _, _ = npu.npu_moe_distribute_dispatch_v2(
        x, ids, **where, quant_mode=2 if quantized else 0, expert_token_nums_type=0)
    if most is not None and int(ends[-1]) > most:
        raise refused(operator, f"{int(ends[-1])} rows for max_output_size {most}", "the device drops rows past it without a word")
    how: dict[str, Any] = dict(group_list=ends, split_item=2, group_type=0)
    if quantized:
        rows, scale, _ = grouped_matmul_swiglu_quant(rows, weight1, _stacked(scale1), scale, ends, swiglu_limit=limit)
        rows = npu.npu_grouped_matmul([rows], [weight2], scale=[_stacked(scale2).to(x.dtype)], per_token_scale=[scale],
                                      output_dtype=x.dtype, **how)[0]
    else:
        rows = npu.npu_grouped_matmul([rows], [weight1], **how)[0]
        rows = npu.npu_grouped_matmul([npu.swiglu(rows, limit)], [weight2], **how)[0]
    out = npu.npu_moe_distribute_combine_v2(rows, ids, assist, received, weights.float(), **where)
    return out, torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))


def dispatch_ffn_combine(x: Tensor, weight1: Sequence[Tensor], weight2: Sequence[Tensor], expert_idx: Tensor,
                         scale1: Sequence[Tensor], scale2: Sequence[Tensor], bias1: Sequence[Tensor], bias2: Sequence[Tensor],
                         probs: Tensor, group: str, max_output_size: int, out: Tensor, expert_token_nums: Tensor,
                         x_active_mask: Tensor | None = None, swiglu_limit: float = 1000000.0) -> tuple[Tensor, Tensor]:
    """Dispatch, product, clamped swiglu, product, combine: separate operators, one after the other."""
    ranks, first = group_of(group), _stacked(weight1)
    where: dict[str, Any] = dict(
        group_ep=group, ep_world_size=ranks.size(), ep_rank_id=ranks.rank(), moe_expert_num=first.shape[0] * ranks.size(),
        x_active_mask=x_active_mask, global_bs=max(ranks.gather_objects(x.shape[0])) * ranks.size())
    result, counts = _fused("_C_ascend.dispatch_ffn_combine", x, first, scale1, _stacked(weight2), scale2, expert_idx, probs, where,
                            max_output_size, swiglu_limit)
    out.copy_(result)
    expert_token_nums.copy_(counts.view(expert_token_nums.shape))
    return out, expert_token_nums


def dispatch_gmm_combine_decode(
        x: Tensor, expert_ids: Tensor, gmm1_permuted_weight: Sequence[Tensor], gmm1_permuted_weight_scale: Sequence[Tensor],
        gmm2_weight: Sequence[Tensor], gmm2_weight_scale: Sequence[Tensor], expert_scales: Tensor,
        expert_smooth_scales: Tensor | None = None, x_active_mask: Tensor | None = None, group_ep: str = "",
        ep_rank_size: int = 0, ep_rank_id: int = 0, moe_expert_num: int = 0, shared_expert_num: int = 1,
        shared_expert_rank_num: int = 0, quant_mode: int = 0, global_bs: int = 0) -> tuple[Tensor, Tensor]:
    """As dispatch_ffn_combine, for few tokens. Weights are read in plain order; the device wants them permuted."""
    if expert_smooth_scales is not None or shared_expert_rank_num:
        raise refused("_C_ascend.dispatch_gmm_combine_decode", "smooth scales, ranks of shared experts", "no caller is known")
    where: dict[str, Any] = dict(group_ep=group_ep, ep_world_size=ep_rank_size, ep_rank_id=ep_rank_id,
                                 moe_expert_num=moe_expert_num, x_active_mask=x_active_mask, global_bs=global_bs)
    return _fused("_C_ascend.dispatch_gmm_combine_decode", x, _stacked(gmm1_permuted_weight), gmm1_permuted_weight_scale,
                  _stacked(gmm2_weight), gmm2_weight_scale, expert_ids, expert_scales, where, None, 0.0)


def functions() -> dict[str, Callable[..., Any]]:
    """The operators of torch.ops._C_ascend, by name."""
    found = {name: value for name, value in globals().items()
             if name.startswith(("grouped_", "npu_", "moe_", "dispatch_")) and callable(value)}
    found["grouped_matmul_swiglu_quant_weight_nz"] = grouped_matmul_swiglu_quant
    return found
