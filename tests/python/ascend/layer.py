"""One rank of an MoE layer that vllm-ascend's own files compute: prepare, choose experts, dispatch, MLP, combine, finalize.

usage: python -m moecl.torch_npu layer.py RELEASE_FOLDER VERSION GENERATION RANK RANKS STORE_FILE CASE...

A case is PATH:FORM:PARALLEL, as mc2:bf16:dp, and may have :on_input (the router's weight multiplies the input), :hierarchy
(rows travel server by server), :shared (with shared experts, whose part is added). The result is compared with a plain torch model of the layer.
"""
import pathlib
import sys
import types

import stubs
import torch
import torch.distributed as dist
import torch_npu

FOLDER, VERSION, GENERATION, RANK, RANKS, STORE = sys.argv[1:7]
RANK, RANKS = int(RANK), int(RANKS)
EXPERTS, HIDDEN, INNER, TOP_K = 8, 64, 32, 2
OLD = VERSION.startswith("0.16")


def model(form):
    """Weights in float32 as the form holds them, and what the form stores: w1 [E, H, 2I], w2 [E, I, H], scales of them, and
    the sums that int4's products need."""
    random = torch.Generator().manual_seed(5)
    w1 = torch.randn(EXPERTS, HIDDEN, 2 * INNER, generator=random) / HIDDEN**0.5
    w2 = torch.randn(EXPERTS, INNER, HIDDEN, generator=random) / INNER**0.5
    if form == "bf16":
        w1, w2 = w1.bfloat16(), w2.bfloat16()
        return (w1.float(), w2.float()), (w1, w2, None, None, None, None)
    if form == "int8":
        scale1, scale2 = ((w.abs().amax(1) / 127).bfloat16() for w in (w1, w2))
        code1, code2 = (torch.round(w / s.float()[:, None]).clamp(-127, 127).to(torch.int8)
                        for w, s in ((w1, scale1), (w2, scale2)))
        return (code1 * scale1.float()[:, None], code2 * scale2.float()[:, None]), (code1, code2, scale1, scale2, None, None)
    if form == "fp8":
        scale1, scale2 = (w.abs().amax(1) / 448 for w in (w1, w2))
        code1, code2 = ((w / s[:, None]).to(torch.float8_e4m3fn) for w, s in ((w1, scale1), (w2, scale2)))
        return (code1.float() * scale1[:, None], code2.float() * scale2[:, None]), (code1, code2, scale1, scale2, None, None)
    packed = [(mx_weight if form == "mxfp8" else int4_weight)(w) for w in (w1, w2)]
    return tuple(p[0] for p in packed), tuple(packed[i][j] for j in (1, 2, 3) for i in (0, 1))


def int4_weight(w):
    """A scale for each channel, as the bits of a float32 in an int64; eight codes in an int32; 8 * sum over K of values."""
    scale = w.abs().amax(1, keepdim=True) / 7
    codes = torch.round(w / scale).clamp(-8, 7).to(torch.int32)
    eight = (codes & 15).unflatten(2, (-1, 8)) << (4 * torch.arange(8, dtype=torch.int32))
    values = codes * scale
    return values, eight.sum(-1, dtype=torch.int32), scale.view(torch.int32).to(torch.int64), 8 * values.sum(1)


def mx_weight(w):
    """Codes of e4m3 with a scale for each 32 of K: values, codes [E, K, N], scales [E, K / 64, N, 2]."""
    blocks = w.unflatten(1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(2, keepdim=True))) - 8
    codes = (blocks * torch.exp2(-exponent)).clamp(-448, 448).to(torch.float8_e4m3fn)
    bytes_ = (exponent.squeeze(2) + 127).to(torch.uint8)
    if bytes_.shape[1] % 2:
        bytes_ = torch.nn.functional.pad(bytes_, (0, 0, 0, 1))
    scale = bytes_.unflatten(1, (-1, 2)).permute(0, 1, 3, 2).contiguous().view(torch.float8_e8m0fnu)
    return (codes.float() * torch.exp2(exponent)).flatten(1, 2), codes.flatten(1, 2), scale, None


def int8_rows(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.where(scale == 0, 0.0, torch.round(x / scale) * scale)


def fp8_rows(x):
    scale = x.abs().amax(-1, keepdim=True) / 448
    return torch.where(scale == 0, 0.0, (x / scale).to(torch.float8_e4m3fn).float() * scale)


def mx_rows(x, up=False):
    """The power of two below amax / 256, or (`up`) above amax / 448."""
    blocks = x.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    exponent = torch.ceil(torch.log2(amax / 448)) if up else torch.floor(torch.log2(amax)) - 8
    return ((blocks * torch.exp2(-exponent)).clamp(-448, 448).to(torch.float8_e4m3fn).float() * torch.exp2(exponent)).flatten(-2)


def reference(path, form, weights, x, ids, topk_weights):
    """The plain model, in float32, one expert after the other; rows are rounded where the path has codes."""
    rounded = {"bf16": lambda rows: rows, "int8": int8_rows, "int4": int8_rows, "int4_fused": int8_rows, "fp8": fp8_rows,
               "mxfp8": mx_rows}[form]
    arriving = (lambda rows: mx_rows(rows, up=True)) if (path, form) == ("all_gather", "mxfp8") and not OLD else rounded
    leaving = (lambda rows: mx_rows(rows.bfloat16().float())) if (path, form) == ("mc2", "mxfp8") and not OLD else lambda rows: rows
    out = torch.zeros(x.shape)
    for expert in range(EXPERTS):
        token, k = (ids == expert).nonzero(as_tuple=True)
        gate, up = (arriving(x[token]) @ weights[0][expert]).chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * up
        out.index_add_(0, token, leaving(rounded(inner) @ weights[1][expert]) * topk_weights[token, k, None])
    return out


def apply_mlp(form, dispatched, stored):
    from vllm_ascend.ops.fused_moe import moe_mlp

    w1, w2, s1, s2, sums1, sums2 = stored
    quantized = form != "bf16"
    mx = dict(use_mxfp_quant=True, act_quant_type=torch.float8_e4m3fn, weight_quant_type=torch.float8_e4m3fn,
              scale_type=torch.float8_e8m0fnu, per_token_scale_type=torch.float8_e8m0fnu, use_bf16=True) if form == "mxfp8" else {}
    if OLD:
        return moe_mlp.unified_apply_mlp(
            hidden_states=dispatched.hidden_states, w1=[w1] if quantized else w1, w2=[w2] if quantized else w2,
            w1_scale=[s1] if quantized else None, w2_scale=[s2] if quantized else None, group_list=dispatched.group_list,
            group_list_type=dispatched.group_list_type, dynamic_scale=dispatched.dynamic_scale, with_quant=quantized,
            w1_scale_bias=sums1, w2_scale_bias=sums2, need_trans=False, fusion=form == "mxfp8", **mx)
    from vllm_ascend.ops.fused_moe.moe_runtime_args import build_mlp_compute_input

    result = moe_mlp.unified_apply_mlp(mlp_compute_input=build_mlp_compute_input(
        fused_experts_input=fused_input(form, stored), token_dispatch_output=dispatched, use_fusion_ops=form in ("mxfp8", "fp8")))
    return result[0] if isinstance(result, tuple) else result


def fused_input(form, stored, **routed):
    from vllm_ascend.ops.fused_moe.moe_runtime_args import build_fused_experts_input
    from vllm_ascend.quantization.quant_type import QuantType

    w1, w2, s1, s2, sums1, sums2 = stored
    quantized = form != "bf16"
    mx = dict(mxfp_act_quant_type=torch.float8_e4m3fn, mxfp_weight_quant_type=torch.float8_e4m3fn,
              mxfp_scale_dtype=torch.float8_e8m0fnu, mxfp_per_token_scale_dtype=torch.float8_e8m0fnu,
              mxfp_use_bf16=True) if form == "mxfp8" else {}
    routed = {"hidden_states": torch.empty(0, HIDDEN, dtype=torch.bfloat16), "topk_weights": None, "topk_ids": None, **routed}
    return build_fused_experts_input(
        w1=[w1] if quantized else w1, w2=[w2] if quantized else w2, w1_scale=[s1] if quantized else None,
        w2_scale=[s2] if quantized else None, w1_scale_bias=None if sums1 is None else [sums1],
        w2_scale_bias=None if sums2 is None else [sums2], is_per_channel_weight=form == "int4_fused", dynamic_eplb=False,
        quant_type={"bf16": QuantType.NONE, "int8": QuantType.W8A8, "mxfp8": QuantType.MXFP8,
                    "fp8": QuantType.W8A8FP8}.get(form, QuantType.W4A8), **mx,
        **routed)


def run(path, form, parallel, groups, context, more):
    from vllm_ascend.ascend_forward_context import MoECommType
    from vllm_ascend.ops.fused_moe import prepare_finalize, token_dispatcher
    from vllm_ascend.ops.fused_moe.experts_selector import select_experts

    import vllm_ascend.ascend_config

    vllm_ascend.ascend_config.get_ascend_config().enable_mc2_hierarchy_comm = "hierarchy" in more
    on_input = "on_input" in more
    top_k = 1 if on_input else TOP_K
    values, stored = model(form)
    local = EXPERTS // RANKS
    stored = tuple(None if part is None else part[RANK * local:(RANK + 1) * local].contiguous() for part in stored)
    # Data-parallel ranks have tokens of their own, of which there may be none; those of a tensor-parallel group the same.
    random = torch.Generator().manual_seed(11)
    counts = [(7, 0, 4, 9)[rank] if parallel == "dp" else 9 for rank in range(RANKS)]
    everyone = [torch.randn(count, HIDDEN, generator=random).bfloat16() for count in counts]
    router = torch.randn(HIDDEN, EXPERTS, generator=random)
    x = everyone[RANK if parallel == "dp" else 0]
    logits = (x.float() @ router).bfloat16()

    context.moe_comm_type = {"mc2": MoECommType.MC2, "all_gather": MoECommType.ALLGATHER, "all_to_all": MoECommType.ALLTOALL}[path]
    context.max_tokens_across_dp = max(counts)
    tp = groups["tp"].world_size
    context.padded_num_tokens = -(-max(counts) // tp) * tp
    context.mc2_mask = torch.arange(context.padded_num_tokens) < x.shape[0]
    name = {"mc2": "MC2", "all_gather": "AllGather", "all_to_all": "All2All"}[path]
    moe_config = types.SimpleNamespace(tp_group=groups["tp"], dp_group=groups["dp"], ep_group=groups["ep"], pcp_size=1,
                                       dp_size=groups["dp"].world_size, tp_size=tp, ep_size=RANKS)
    prepare = getattr(prepare_finalize, f"PrepareAndFinalizeWith{name}")(moe_config)
    made = getattr(token_dispatcher, f"TokenDispatcherWith{'All2AllV' if name == 'All2All' else name}")
    dispatcher = made(top_k=top_k, num_experts=EXPERTS, num_local_experts=local)
    expert_map = torch.full((EXPERTS,), -1, dtype=torch.int32)
    expert_map[RANK * local:(RANK + 1) * local] = torch.arange(local, dtype=torch.int32)

    prepared = prepare.prepare(x.clone(), logits.clone())
    if OLD:
        hidden, chosen, mask, carried = prepared
    else:
        hidden, chosen, mask, carried = (prepared.hidden_states, prepared.router_logits, prepared.mc2_mask,
                                         prepared.padded_hidden_states_shape)
    weights, ids = select_experts(hidden_states=hidden, router_logits=chosen, top_k=top_k, use_grouped_topk=False,
                                  renormalize=not on_input, **({"global_num_experts": EXPERTS} if OLD else {"num_experts": EXPERTS}))
    quantized = form != "bf16"
    if OLD:
        mx = dict(use_mxfp_quant=form == "mxfp8") if path == "mc2" else {}
        dispatched = dispatcher.token_dispatch(
            hidden_states=hidden, topk_weights=weights, topk_ids=ids, expert_map=expert_map, mc2_mask=mask,
            with_quant=quantized, apply_router_weight_on_input=on_input, **mx)
        rows = apply_mlp(form, dispatched, stored)
        combined = dispatcher.token_combine(rows, dispatched.context_metadata).routed_out
    else:
        from vllm_ascend.ops.fused_moe.moe_runtime_args import build_token_dispatch_input

        dispatched = dispatcher.token_dispatch(build_token_dispatch_input(fused_experts_input=fused_input(
            form, stored, hidden_states=hidden, topk_weights=weights, topk_ids=ids, expert_map=expert_map, mc2_mask=mask,
            apply_router_weight_on_input=on_input)))
        rows = apply_mlp(form, dispatched, stored)
        combined = dispatcher.token_combine(rows, dispatched.combine_metadata)
    out = prepare.finalize(combined, True, carried)
    if path == "all_gather" and parallel == "tp":  # the model's runner does it
        dist.all_reduce(out)

    shared = [torch.randn(shape, generator=torch.Generator().manual_seed(17)).bfloat16() / 8 for shape in ((HIDDEN, 2 * INNER), (INNER, HIDDEN))]
    if "shared" in more:
        out = out + torch_npu.npu_swiglu(x @ shared[0]) @ shared[1]

    assert out.shape == x.shape, (out.shape, x.shape)
    scores = logits.float().softmax(-1)
    best = scores.topk(top_k, -1)
    ids, weights = best.indices, best.values if on_input else best.values / best.values.sum(-1, keepdim=True)
    weights = weights.bfloat16().float()
    given = (x * weights.bfloat16()).float() if on_input else x.float()  # and the sum has the weight once more
    expected = reference(path, form, values, given, ids, weights)
    if "shared" in more:
        gate, up = (x.float() @ shared[0].float()).chunk(2, -1)
        expected = expected + (torch.nn.functional.silu(gate) * up) @ shared[1].float()
    if x.shape[0]:
        # A code may fall to the other side of a tie: few elements are off by a step of its format.
        off = (out.float() - expected).abs().flatten() / expected.abs().max()
        worst, most = off.max().item(), off.quantile(0.98).item()
        step = {"bf16": 2.0**-7, "mxfp8": 2.0**-3, "fp8": 2.0**-3}.get(form, 2.0**-5)
        assert worst < step and most < 2.0**-7, f"{path} {form} {parallel}: off by {worst:.4f}, most by {most:.4f}"
        assert expected.abs().max() > 0.1
    return worst if x.shape[0] else 0.0


def main():
    dist.init_process_group("hccl", init_method=f"file://{STORE}", rank=RANK, world_size=RANKS)
    everyone = range(RANKS)
    whole = stubs.Group(everyone, dist.new_group(list(everyone), backend="hccl"), RANK)
    alone = [dist.new_group([rank], backend="hccl") for rank in everyone][RANK]
    alone = stubs.Group([RANK], alone, RANK)
    groups = {"ep": whole, "dp": whole, "tp": alone, **dict.fromkeys(("pcp", "pp", "dcp"), alone)}
    context = types.SimpleNamespace(in_profile_run=False)
    stubs.install(pathlib.Path(FOLDER), VERSION.removesuffix("rc1"), GENERATION, groups, context)
    for case in sys.argv[7:]:
        path, form, parallel, *more = case.split(":")
        groups.update({"dp": whole, "tp": alone} if parallel == "dp" else {"dp": alone, "tp": whole})
        worst = run(path, form, parallel, groups, context, more)
        print(f"rank {RANK}: {case}: {worst:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
