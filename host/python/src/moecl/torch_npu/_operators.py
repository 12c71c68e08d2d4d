"""torch_npu.npu_*: the operators with torch_npu's own parameters, on torch tensors. Most are moecl's operators
unchanged; the others are composed of moecl's operators."""
from __future__ import annotations

import inspect
import time
from typing import Any, Callable, Sequence

import torch

from moecl import operators
from moecl.torch_npu._distribute import together
from moecl.torch_npu._hccl import group_of
from moecl.torch_npu._names import refused

Tensor = torch.Tensor

# torch_npu's numbers of types that older versions of torch do not have.
NUMBERED = {290: "hifloat8", 291: "float8_e5m2", 292: "float8_e4m3fn", 293: "float8_e8m0fnu", 296: "float4_e2m1fn_x2",
            297: "float4_e1m2fn_x2", 1: "int8"}
CODES = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
E8M0 = torch.float8_e8m0fnu


def types() -> dict[str, Any]:
    """Dtypes of torch_npu that are attributes of its module."""
    return {"float8_e8m0fnu": E8M0, "float4_e2m1fn_x2": getattr(torch, "float4_e2m1fn_x2", 296), "float4_e1m2fn_x2": 297}


def name_of(dtype: Any) -> str:
    """The name, such as "float8_e4m3fn", of a torch dtype or of its number in torch_npu."""
    if isinstance(dtype, int):
        if dtype not in NUMBERED:
            raise ValueError(f"dtype {dtype} is none of {NUMBERED}")
        return NUMBERED[dtype]
    return str(dtype).removeprefix("torch.")


def code_type(dtype: Any) -> str:
    """The name of a type of codes in moecl's grouped_matmul."""
    if dtype is None:
        return "none"
    short = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "e2m1", "float8_e8m0fnu": "float8_e8m0fnu"}
    name = name_of(dtype)
    if name not in short:
        raise refused("npu_grouped_matmul", f"codes of {name}", f"there are {', '.join(short)}")
    return short[name]


def _none(dtype: torch.dtype = torch.float32) -> Tensor:
    """The empty tensor that the device returns for an output that a call does not have."""
    return torch.empty(0, dtype=dtype)


def _all_there(results: Any) -> tuple[Any, ...]:
    return tuple(_none() if result is None else result for result in results)


def plain(function: Callable[..., Any], **reserved: Any) -> Callable[..., Any]:
    """An operator of moecl, with positional parameters in moecl's order. `reserved` parameters may only be their
    default."""
    fields = getattr(operators, f"_{function.__name__}").fields
    names = [name for kind, name, *_ in fields if kind != "o"]

    def called(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"npu_{function.__name__}() takes {len(names)} arguments, got {len(args)}")
        for name, default in reserved.items():
            value = kwargs.pop(name, default)
            if value is not None and value != default:
                raise refused(f"npu_{function.__name__}", f"{name}={value}", "the device reserves it")
        for name, value in zip(names, args):
            if name in kwargs:
                raise TypeError(f"npu_{function.__name__}() got several values for {name}")
            kwargs[name] = value
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        result = function(**kwargs)
        return _all_there(result) if isinstance(result, tuple) else result

    known = inspect.signature(function).parameters
    called.__doc__ = function.__doc__
    called.parameters = [known[name] for name in names]  # type: ignore[attr-defined]
    return called


_init_routing_v2 = plain(operators.moe_init_routing_v2)
# The dtype of the rows that a quant_mode gives. Rows of fp4, int4 and HiFloat8 are bytes.
FP8_MODES = {mode: torch.float8_e5m2 for mode in (2, 4, 11, 14, 16)} | {mode: torch.float8_e4m3fn for mode in (3, 5, 12, 15, 17)}


def npu_moe_init_routing_v2(
        x: Tensor, expert_idx: Tensor, *, scale: Tensor | None = None, offset: Tensor | None = None, active_num: int = -1,
        expert_capacity: int = -1, expert_num: int = -1, drop_pad_mode: int = 0, expert_tokens_num_type: int = 0,
        expert_tokens_num_flag: bool = False, quant_mode: int = -1, active_expert_range: Sequence[int] = (),
        row_idx_type: int = 0, x_dtype: Any = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows in expert order. Rows that are codes are moved with their scales, which are float32 or e8m0."""
    rows, index, tokens, scales = _init_routing_v2(
        x, expert_idx.to(torch.int32), scale=scale, offset=offset, active_num=active_num, expert_capacity=expert_capacity,
        expert_num=expert_num, drop_pad_mode=drop_pad_mode, expert_tokens_num_type=expert_tokens_num_type,
        expert_tokens_num_flag=expert_tokens_num_flag, quant_mode=quant_mode, active_expert_range=active_expert_range,
        row_idx_type=row_idx_type)
    if quant_mode == -1:
        return rows.view(x.dtype), index, tokens, scales if scale is None else scales.view(scale.dtype)
    made = FP8_MODES.get(quant_mode)
    if quant_mode in (2, 3, 9, 16, 17):
        scales = scales.view(E8M0)
    return rows.view(made) if made else rows, index, tokens, scales


_token_permute = plain(operators.moe_token_permute)


def npu_moe_token_permute(tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None,
                          padded_mode: bool = False) -> tuple[Tensor, Tensor]:
    """Tokens sorted by index. 8-bit codes are moved unchanged."""
    rows, order = _token_permute(tokens, indices, num_out_tokens, padded_mode)
    return rows.view(tokens.dtype), order


_token_unpermute = plain(operators.moe_token_unpermute)


def npu_moe_token_unpermute(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None = None,
                            padded_mode: bool = False, restore_shape: Sequence[int] | None = None) -> Tensor:
    """For each token, the weighted sum of its rows."""
    return _token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode,
                            tuple(restore_shape) if padded_mode and restore_shape is not None else None)


_re_routing = plain(operators.moe_re_routing)


def npu_moe_re_routing(tokens: Tensor, expert_token_num_per_rank: Tensor, *, per_token_scales: Tensor | None = None,
                       expert_token_num_type: int = 1, idx_type: int = 0) -> tuple[Tensor, ...]:
    """Reorders rows: from the order rank, expert to the order expert, rank."""
    result = _re_routing(tokens, expert_token_num_per_rank, per_token_scales=per_token_scales,
                         expert_token_num_type=expert_token_num_type, idx_type=idx_type)
    return result[0].view(tokens.dtype), *result[1:]


def fp8_rows(x: Tensor, dtype: torch.dtype, width: int = 0) -> tuple[Tensor, Tensor]:
    """Quantizes rows to fp8, with a scale amax / largest for each row, or for each `width` columns of a row. Codes are
    x / scale, halves to even; zeros keep scale 0."""
    wide = x.float()
    groups = wide.unflatten(-1, (-1, width)) if width else wide.unsqueeze(-2)
    scale = groups.abs().amax(-1) / LARGEST[name_of(dtype)]
    codes = torch.where(scale.unsqueeze(-1) == 0, 0.0, groups / scale.unsqueeze(-1)).to(dtype).flatten(-2)
    return codes, scale if width else scale.squeeze(-1)


_dynamic_quant = plain(operators.dynamic_quant)


def npu_dynamic_quant(x: Tensor, *, smooth_scales: Tensor | None = None, group_index: Tensor | None = None,
                      dst_type: Any = None) -> tuple[Tensor, Tensor]:
    """Quantizes rows to int8, int4 or fp8, with a scale for each row."""
    name = "int8" if dst_type is None else name_of(dst_type)
    codes, scale = _dynamic_quant(x, smooth_scales=smooth_scales, group_index=group_index, dst_type=name)
    return codes.view(getattr(torch, name)) if name in LARGEST else codes, scale


_dynamic_mx_quant = plain(operators.dynamic_mx_quant)


def npu_dynamic_mx_quant(x: Tensor, *, axis: int = -1, round_mode: str = "rint", dst_type: Any = 296, block_size: int = 32,
                         scale_alg: int = 0) -> tuple[Tensor, Tensor]:
    """Quantizes blocks of 32 to fp8 or fp4, with a power of two as the scale of each block."""
    name = name_of(dst_type)
    y, scale = _dynamic_mx_quant(x, axis=axis, round_mode=round_mode, dst_type=name, block_size=block_size, scale_alg=scale_alg)
    return y.view(getattr(torch, name)) if name in LARGEST else y, scale.view(E8M0)


_grouped_matmul = plain(operators.grouped_matmul, activation_input=None, activation_quant_scale=None,
                        activation_quant_offset=None, tuning_config=None, offset_x=None)


def _listed(value: Any) -> list[Tensor] | None:
    return None if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _codes(tensors: list[Tensor] | None) -> list[Tensor] | None:
    """Views fp8 and e8m0 tensors as the bytes that moecl takes."""
    if tensors is None:
        return None
    return [t.view(torch.uint8) if t.dtype in (*CODES, E8M0) else t for t in tensors]


def npu_grouped_matmul(x: Any, weight: Any, *, bias: Any = None, scale: Any = None, offset: Any = None,
                       antiquant_scale: Any = None, antiquant_offset: Any = None, per_token_scale: Any = None,
                       group_list: Any = None, activation_input: Any = None, activation_quant_scale: Any = None,
                       activation_quant_offset: Any = None, split_item: int = 0, group_type: int | None = None,
                       group_list_type: int = 0, act_type: int = 0, output_dtype: Any = None,
                       tuning_config: Sequence[int] | None = None, x_dtype: Any = None, weight_dtype: Any = None,
                       scale_dtype: Any = None, per_token_scale_dtype: Any = None) -> list[Tensor]:
    """For each group, the product of its rows and its weights."""
    x, weight = _listed(x), _listed(weight)
    scale, per_token_scale, antiquant_scale = _listed(scale), _listed(per_token_scale), _listed(antiquant_scale)
    assert x is not None and weight is not None
    of_codes = x[0].dtype in CODES or x_dtype is not None and name_of(x_dtype) in ("float4_e2m1fn_x2", *LARGEST)
    types: dict[str, Any] = {}
    if of_codes:
        if antiquant_scale is not None:
            raise refused("npu_grouped_matmul", "fp8 x beside antiquant_scale", "no product of moecl takes fp8 times fp4")
        if scale is None or scale[0].element_size() != 1:
            if len(x) != 1 or len(weight) != 1 or scale is None or bias is not None or group_type != 0 or group_list_type == 2:
                raise refused("npu_grouped_matmul", "fp8 codes with real scales and lists, pairs or a bias", "no caller is known")
            product = _fp8_product(x[0], weight[0], scale[0], per_token_scale[0] if per_token_scale else None, group_list,
                                   group_list_type)
            return [product.to(output_dtype or torch.bfloat16)]
        types = {"x_dtype": code_type(x_dtype) if x_dtype is not None else CODES[x[0].dtype],
                 "weight_dtype": code_type(weight_dtype) if weight_dtype is not None else CODES[weight[0].dtype],
                 "scale_dtype": "float8_e8m0fnu", "per_token_scale_dtype": "float8_e8m0fnu"}
        weight = [w.unsqueeze(0) if w.dim() == 2 else w for w in weight]
        # Dispatch gives the scales of a row in one dimension; grouped_matmul takes them in pairs.
        per_token_scale = [s.unflatten(-1, (-1, 2)) if s.dim() == 2 else s for s in per_token_scale or []]
    result = _grouped_matmul(
        _codes(x), _codes(weight), bias=_listed(bias), scale=_codes(scale), offset=_listed(offset),
        antiquant_scale=antiquant_scale, antiquant_offset=_listed(antiquant_offset), per_token_scale=_codes(per_token_scale),
        group_list=torch.tensor(group_list) if isinstance(group_list, (list, tuple)) else group_list, split_item=split_item,
        group_type=-1 if group_type is None else group_type, group_list_type=group_list_type, act_type=act_type,
        output_dtype=output_dtype, tuning_config=None, activation_input=activation_input,
        activation_quant_scale=activation_quant_scale, activation_quant_offset=activation_quant_offset, **types)
    return result


def _fp8_product(x: Tensor, weight: Tensor, scale: Tensor, per_token_scale: Tensor | None, group_list: Tensor,
                 group_list_type: int) -> Tensor:
    """Product of fp8 codes in float32, which holds the codes: sums, times the channel's scale, times the row's
    scale."""
    product = _grouped_matmul([x.float()], [weight.float()], group_list=group_list, split_item=2, group_type=0,
                              group_list_type=group_list_type)[0]
    counts = group_list if group_list_type == 1 else torch.diff(group_list, prepend=group_list.new_zeros(1))
    expert = torch.repeat_interleave(torch.arange(len(counts)), counts.long())
    rows = len(expert)
    product[:rows] *= scale.float().reshape(len(counts), -1)[expert]
    if per_token_scale is not None:
        product[:rows] *= per_token_scale[:rows].float().reshape(-1, 1)
    return product


_swiglu_quant = plain(operators.grouped_matmul_swiglu_quant, offset=None)


def npu_grouped_matmul_swiglu_quant(x: Tensor, weight: Tensor, group_list: Tensor, weight_scale: Tensor, x_scale: Tensor, *,
                                    bias: Tensor | None = None, offset: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped product, then swish(gate) * up, then quantization to int8 rows."""
    y, scale = _swiglu_quant(x, weight, group_list, weight_scale, x_scale, bias=bias, offset=offset)
    return y, scale, _none()


_swiglu_quant_v2 = plain(operators.grouped_matmul_swiglu_quant_v2)


def npu_grouped_matmul_swiglu_quant_v2(
        x: Tensor, weight: Any, weight_scale: Any, x_scale: Tensor, group_list: Tensor, *, smooth_scale: Tensor | None = None,
        weight_assist_matrix: Any = None, bias: Tensor | None = None, dequant_mode: int = 0, dequant_dtype: Any = None,
        quant_mode: int = 0, quant_dtype: Any = None, group_list_type: int = 0, tuning_config: Sequence[int] | None = None,
        x_dtype: Any = None, weight_dtype: Any = None, weight_scale_dtype: Any = None, x_scale_dtype: Any = None,
        swiglu_limit: float = 0.0) -> tuple[Tensor, Tensor]:
    """As npu_grouped_matmul_swiglu_quant, with lists of weights. dequant_mode and quant_mode 2: MX product, swiglu in
    f32, MX rows. fp8: the same, with a scale for each row."""
    weight, weight_scale = _listed(weight), _listed(weight_scale)
    assert weight is not None and weight_scale is not None
    if (dequant_mode == 2) != (quant_mode == 2):
        raise refused("npu_grouped_matmul_swiglu_quant_v2", f"dequant_mode {dequant_mode} with quant_mode {quant_mode}",
                      "MX operands give MX rows")
    if quant_mode == 2:
        product = npu_grouped_matmul([x], weight, scale=weight_scale, per_token_scale=[x_scale], group_list=group_list,
                                     split_item=2, group_type=0, group_list_type=group_list_type, output_dtype=torch.float32,
                                     x_dtype=x_dtype, weight_dtype=weight_dtype)[0]
        return npu_dynamic_mx_quant(swiglu(product, swiglu_limit), dst_type=quant_dtype or torch.float8_e4m3fn)
    if x.dtype in CODES:
        product = _fp8_product(x, weight[0], weight_scale[0], x_scale, group_list, group_list_type)
        return fp8_rows(swiglu(product, swiglu_limit), x.dtype)
    if swiglu_limit > 0:
        raise refused("npu_grouped_matmul_swiglu_quant_v2", f"swiglu_limit={swiglu_limit}", "_C_ascend's form has it")
    return _swiglu_quant_v2(x, weight, weight_scale, x_scale, group_list, smooth_scale=smooth_scale,
                            weight_assist_matrix=_listed(weight_assist_matrix), bias=bias, dequant_mode=dequant_mode,
                            quant_mode=quant_mode, group_list_type=group_list_type)


def swiglu(x: Tensor, limit: float = 0.0) -> Tensor:
    """swish(first half) * second half, in x's dtype. With a limit, both halves are clamped first."""
    if limit > 0:
        gate, up = x.chunk(2, dim=-1)
        x = torch.cat([gate.clamp(max=limit), up.clamp(-limit, limit)], dim=-1)
    return operators.swiglu(x.contiguous())


def npu_clipped_swiglu(x: Tensor, *, group_index: Tensor | None = None, dim: int = -1, alpha: float = 1.702,
                       limit: float = 7.0, bias: float = 1.0, interleaved: bool = True) -> Tensor:
    """g * sigmoid(alpha * g) * (u + bias), with g clamped to at most limit and u to [-limit, limit]. Rows past the sum
    of group_index are not defined."""
    wide = x.float()
    if interleaved:
        if dim not in (-1, x.dim() - 1):
            raise refused("npu_clipped_swiglu", f"interleaved along dimension {dim}", "rows are what experts have")
        gate, up = wide[..., ::2], wide[..., 1::2]
    else:
        gate, up = wide.chunk(2, dim=dim)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + bias)).to(x.dtype)


def npu_fast_gelu(x: Tensor) -> Tensor:
    """x / (1 + exp(-1.702 |x|)) * exp(0.851 (x - |x|)), which is x * sigmoid(1.702 x), in f32."""
    wide = x.float()
    return (wide * torch.sigmoid(1.702 * wide)).to(x.dtype)


def npu_format_cast(tensor: Tensor, acl_format: int, customize_dtype: Any = None, **_: Any) -> Tensor:
    """Returns the tensor unchanged: a format is an order of the same numbers."""
    return tensor


def _npu_group_topk(self: Tensor, k: int, group_num: int, **_: Any) -> None:
    """Sets the scores of all but the k best groups to 0, in place. Groups are compared by their maximum."""
    groups = self.view(self.shape[0], group_num, -1)
    best = torch.topk(groups.amax(-1).float(), k, dim=-1).indices
    kept = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter_(1, best, True)
    groups.masked_fill_(~kept.unsqueeze(-1), 0)


def npu_mm_reduce_scatter_base(self: Tensor, x2: Tensor, hcom: str, world_size: int, *, reduce_op: str = "sum",
                               bias: Tensor | None = None, x1_scale: Tensor | None = None, x2_scale: Tensor | None = None,
                               comm_turn: int = 0, output_dtype: Any = None, comm_mode: str = "ai_cpu") -> Tensor:
    """This rank's rows of the sum of the ranks' products."""
    if reduce_op != "sum" or x1_scale is not None or x2_scale is not None:
        raise refused("npu_mm_reduce_scatter_base", "other reductions than sum, or scales", "no MoE layer asks for them")
    product = operators.grouped_matmul([self], [x2.unsqueeze(0)], group_list=torch.tensor([self.shape[0]]), split_item=2,
                                       group_type=0, output_dtype=output_dtype)[0]
    if bias is not None:
        product = product + bias
    out = torch.empty(product.shape[0] // world_size, product.shape[1], dtype=product.dtype)
    group_of(hcom).reduce_scatter_single(out, product)
    return out


_dispatch: dict[str, Callable[..., Any]] = {"v1": operators.moe_distribute_dispatch, "v2": operators.moe_distribute_dispatch_v2}
# The names in moecl's dispatch of row types that have no dtype in moecl.
ROW_CODES = {"float4_e2m1fn_x2": "e2m1", "float4_e1m2fn_x2": "e1m2", "hifloat8": "hif8"}


def _wanted(y_dtype: Any) -> dict[str, Any]:
    if y_dtype is None:
        return {}
    name = name_of(y_dtype)
    return {"y_dtype": "uint8", "y_codes": ROW_CODES[name]} if name in ROW_CODES else {"y_dtype": name}


def _dispatched(version: str, x: Tensor, expert_ids: Tensor, group_ep: str, quant_mode: int, scales: Tensor | None,
                y_dtype: Any, given: dict[str, Any]) -> tuple[Any, ...]:
    """Calls moecl's dispatch, and views rows and scales in torch's dtypes."""
    flat = scales if scales is None or scales.dim() < 3 else scales.flatten(1)
    rows, row_scales, *rest = together(group_of(group_ep), _dispatch[version], {
        "x": x, "expert_ids": expert_ids.to(torch.int32), "group_ep": group_ep, "quant_mode": quant_mode, "scales": flat,
        **_wanted(y_dtype), **given})
    if quant_mode == 0 and x.dtype in CODES:
        rows = rows.view(x.dtype)
        row_scales = row_scales.view(scales.dtype) if scales is not None else row_scales
    elif quant_mode >= 2 and rows.dtype == torch.uint8 and (y_dtype is None or name_of(y_dtype) in LARGEST):
        rows = rows.view(torch.float8_e4m3fn if y_dtype is None else getattr(torch, name_of(y_dtype)))
    if quant_mode in (4, 5):
        row_scales = row_scales.view(E8M0)
    return (rows, *_all_there((row_scales, *rest)))


def npu_moe_distribute_dispatch_v2(
        x: Tensor, expert_ids: Tensor, group_ep: str, ep_world_size: int, ep_rank_id: int, moe_expert_num: int, *,
        scales: Tensor | None = None, x_active_mask: Tensor | None = None, expert_scales: Tensor | None = None,
        elastic_info: Tensor | None = None, performance_info: Tensor | None = None, group_tp: str = "", tp_world_size: int = 0,
        tp_rank_id: int = 0, expert_shard_type: int = 0, shared_expert_num: int = 1, shared_expert_rank_num: int = 0,
        quant_mode: int = 0, global_bs: int = 0, expert_token_nums_type: int = 1, comm_alg: str = "", zero_expert_num: int = 0,
        copy_expert_num: int = 0, const_expert_num: int = 0, y_dtype: Any = None, x_dtype: Any = None,
        scales_dtype: Any = None) -> tuple[Any, ...]:
    """Sends tokens to the ranks of their experts."""
    began = time.perf_counter()
    if elastic_info is not None:
        raise refused("npu_moe_distribute_dispatch_v2", "elastic_info", "its document reserves it, and the device takes None alone")
    result = _dispatched("v2", x, expert_ids, group_ep, quant_mode, scales, y_dtype, {
        "ep_world_size": ep_world_size, "ep_rank_id": ep_rank_id, "moe_expert_num": moe_expert_num,
        "x_active_mask": x_active_mask, "expert_scales": expert_scales, "group_tp": group_tp, "tp_world_size": tp_world_size,
        "tp_rank_id": tp_rank_id, "expert_shard_type": expert_shard_type, "shared_expert_num": shared_expert_num,
        "shared_expert_rank_num": shared_expert_rank_num, "global_bs": global_bs,
        "expert_token_nums_type": expert_token_nums_type, "comm_alg": comm_alg, "zero_expert_num": zero_expert_num,
        "copy_expert_num": copy_expert_num, "const_expert_num": const_expert_num})
    _add_wait(performance_info, began, ep_rank_id)
    return result


def _add_wait(performance_info: Tensor | None, began: float, rank: int) -> None:
    """Adds the microseconds of the call to every peer's entry, since it is not known which peer it waited for."""
    if performance_info is not None:
        waited = round((time.perf_counter() - began) * 1e6)
        performance_info += torch.tensor([0 if peer == rank else waited for peer in range(performance_info.numel())])


def npu_moe_distribute_dispatch(
        x: Tensor, expert_ids: Tensor, group_ep: str, ep_world_size: int, ep_rank_id: int, moe_expert_num: int, *,
        scales: Tensor | None = None, x_active_mask: Tensor | None = None, expert_scales: Tensor | None = None,
        group_tp: str = "", tp_world_size: int = 0, tp_rank_id: int = 0, expert_shard_type: int = 0, shared_expert_num: int = 1,
        shared_expert_rank_num: int = 0, quant_mode: int = 0, global_bs: int = 0,
        expert_token_nums_type: int = 1) -> tuple[Any, ...]:
    """The first version of dispatch_v2."""
    return _dispatched("v1", x, expert_ids, group_ep, quant_mode, scales, None, {
        "ep_world_size": ep_world_size, "ep_rank_id": ep_rank_id, "moe_expert_num": moe_expert_num,
        "x_active_mask": x_active_mask, "expert_scales": expert_scales, "group_tp": group_tp, "tp_world_size": tp_world_size,
        "tp_rank_id": tp_rank_id, "expert_shard_type": expert_shard_type, "shared_expert_num": shared_expert_num,
        "shared_expert_rank_num": shared_expert_rank_num, "global_bs": global_bs,
        "expert_token_nums_type": expert_token_nums_type})


def npu_moe_distribute_combine_v2(
        expand_x: Tensor, expert_ids: Tensor, assist_info_for_combine: Tensor, ep_send_counts: Tensor, expert_scales: Tensor,
        group_ep: str, ep_world_size: int, ep_rank_id: int, moe_expert_num: int, *, tp_send_counts: Tensor | None = None,
        x_active_mask: Tensor | None = None, expand_scales: Tensor | None = None, shared_expert_x: Tensor | None = None,
        elastic_info: Tensor | None = None, ori_x: Tensor | None = None, const_expert_alpha_1: Tensor | None = None,
        const_expert_alpha_2: Tensor | None = None, const_expert_v: Tensor | None = None,
        performance_info: Tensor | None = None, group_tp: str = "", tp_world_size: int = 0, tp_rank_id: int = 0,
        expert_shard_type: int = 0, shared_expert_num: int = 1, shared_expert_rank_num: int = 0, global_bs: int = 0,
        comm_quant_mode: int = 0, comm_alg: str = "", zero_expert_num: int = 0, copy_expert_num: int = 0,
        const_expert_num: int = 0) -> Tensor:
    """Brings expert rows back to their tokens, weighted and summed in column order."""
    began = time.perf_counter()
    if elastic_info is not None:
        raise refused("npu_moe_distribute_combine_v2", "elastic_info", "its document reserves it, and the device takes None alone")
    result = together(group_of(group_ep), operators.moe_distribute_combine_v2, {
        "expand_x": expand_x, "group_ep": group_ep, "comm_quant_mode": comm_quant_mode,
        "expert_ids": expert_ids.to(torch.int32), "assist_info_for_combine": assist_info_for_combine,
        "ep_send_counts": ep_send_counts, "expert_scales": expert_scales, "ep_world_size": ep_world_size,
        "ep_rank_id": ep_rank_id, "moe_expert_num": moe_expert_num, "tp_send_counts": None, "x_active_mask": x_active_mask,
        "expand_scales": expand_scales if comm_alg == "hierarchy" else None, "shared_expert_x": shared_expert_x,
        "ori_x": ori_x, "const_expert_alpha_1": const_expert_alpha_1,
        "const_expert_alpha_2": const_expert_alpha_2, "const_expert_v": const_expert_v,
        "group_tp": group_tp, "tp_world_size": tp_world_size, "tp_rank_id": tp_rank_id, "expert_shard_type": expert_shard_type,
        "shared_expert_num": shared_expert_num, "shared_expert_rank_num": shared_expert_rank_num, "global_bs": global_bs,
        "comm_alg": comm_alg, "zero_expert_num": zero_expert_num, "copy_expert_num": copy_expert_num,
        "const_expert_num": const_expert_num})
    _add_wait(performance_info, began, ep_rank_id)
    return result


def npu_moe_distribute_combine(
        expand_x: Tensor, expert_ids: Tensor, expand_idx: Tensor, ep_send_counts: Tensor, expert_scales: Tensor, group_ep: str,
        ep_world_size: int, ep_rank_id: int, moe_expert_num: int, *, tp_send_counts: Tensor | None = None,
        x_active_mask: Tensor | None = None, activation_scale: Tensor | None = None, weight_scale: Tensor | None = None,
        group_list: Tensor | None = None, expand_scales: Tensor | None = None, shared_expert_x: Tensor | None = None,
        group_tp: str = "", tp_world_size: int = 0, tp_rank_id: int = 0, expert_shard_type: int = 0, shared_expert_num: int = 1,
        shared_expert_rank_num: int = 0, global_bs: int = 0, out_dtype: int = 0, comm_quant_mode: int = 0,
        group_list_type: int = 0) -> Tensor:
    """The first version of combine_v2."""
    return together(group_of(group_ep), operators.moe_distribute_combine, {
        "expand_x": expand_x, "group_ep": group_ep, "comm_quant_mode": comm_quant_mode,
        "expert_ids": expert_ids.to(torch.int32), "expand_idx": expand_idx, "ep_send_counts": ep_send_counts,
        "expert_scales": expert_scales, "ep_world_size": ep_world_size, "ep_rank_id": ep_rank_id,
        "moe_expert_num": moe_expert_num, "shared_expert_x": shared_expert_x, "group_tp": group_tp,
        "tp_world_size": tp_world_size, "tp_rank_id": tp_rank_id, "expert_shard_type": expert_shard_type,
        "shared_expert_num": shared_expert_num, "shared_expert_rank_num": shared_expert_rank_num, "global_bs": global_bs})


def functions() -> dict[str, Callable[..., Any]]:
    """The operators of torch_npu that the stand-in has, by name."""
    found = {name: value for name, value in globals().items() if name.startswith(("npu_", "_npu_")) and callable(value)}
    for name in operators.__all__:
        if not name.startswith("c_ascend_") and f"npu_{name}" not in found:
            found[f"npu_{name}"] = plain(getattr(operators, name))
    return found
