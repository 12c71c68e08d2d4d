#!/usr/bin/env python3
"""The stand-in's speed: what a call from Python costs beside the same calls in C, and AllGather's dispatch and combine of
vllm-ascend against plain torch operators that do the same on the CPU.

usage: python bench/peers/torch_npu.py [SECONDS] [FOLDER_OF_VLLM_ASCEND]

With a folder of vllm-ascend 0.23.0 (tests/python/ascend/releases.py fetches one) the dispatcher is its own, unmodified;
without it the operators that it calls. moecl and torch have to be there: tests/python/run puts moecl into BUILD/python.
"""
import pathlib
import statistics
import sys
import time
import types

import moecl
import moecl.torch_npu
import torch
from moecl import _operator, operators
from moecl._binding import ffi, lib
from moecl._runtime import Shared, check, default_stream, struct

moecl.torch_npu.install()
import torch_npu  # noqa: E402

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
SHAPES = {"qwen3-30b-a3b": (2048, 128, 8), "deepseek-v3": (7168, 256, 8)}


def medians(functions):
    """Of functions that take turns, so that all see the same machine."""
    for function in functions:
        function(), function()
    times = [[] for _ in functions]
    end = time.perf_counter() + SECONDS
    while len(times[0]) < 5 or time.perf_counter() < end:
        for function, of in zip(functions, times):
            start = time.perf_counter()
            function()
            of.append(time.perf_counter() - start)
    return [statistics.median(of) * 1e6 for of in times]


def processor_us(functions, calls=400):
    """Of the calling thread, the least of groups of calls that take turns: what a driver's threads do beside is left out."""
    least = [float("inf")] * len(functions)
    for _ in range(40):
        for i, function in enumerate(functions):
            start = time.thread_time()
            for _ in range(calls):
                function()
            least[i] = min(least[i], (time.thread_time() - start) / calls * 1e6)
    return least


def c_calls(x):
    """dynamic_quant as a C program calls it, whose arrays are on the device and whose outputs are there: plan, call, wait."""
    operator, stream = operators._dynamic_quant, default_stream()
    args = ffi.new(operator.kind)
    ffi.memmove(args, operator.defaults, len(operator.defaults))
    shared = Shared(stream)
    outputs = torch.empty(x.shape, dtype=torch.int8), torch.empty(x.shape[:-1])
    shared.tensor(args.x, x, "x")
    workspace = ffi.new("uint64_t*")
    check(operator.plan(stream._handle, args, workspace))
    shared.tensor(args.y, outputs[0], "y", written=True)
    shared.tensor(args.scale, outputs[1], "scale", written=True)
    call = struct("moecl_call")
    call.fault.memory = _operator.fault_of(stream)

    def run():
        check(operator.plan(stream._handle, args, workspace))
        check(operator.run(stream._handle, args, call, 0, ffi.NULL, ffi.NULL))
        check(lib.moecl_stream_finish(stream._handle))

    run.keep = (shared, outputs, call)
    return run


def dispatcher(folder, hidden, experts, top_k):
    """vllm-ascend's own token_dispatch and token_combine, or the operators that they call."""
    if folder is None:
        def dispatch(x, weights, ids, mode):
            rows, index, counts, scale = torch_npu.npu_moe_init_routing_v2(
                x, ids, active_num=ids.numel(), expert_num=experts, expert_tokens_num_type=1, expert_tokens_num_flag=True,
                active_expert_range=[0, experts], quant_mode=mode)
            return rows, lambda out: torch_npu.npu_moe_token_unpermute(out, torch.abs(index), weights)
        return dispatch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python/ascend"))
    import stubs

    alone = stubs.Group([0], None, 0)
    groups = dict.fromkeys(("ep", "dp", "tp", "pcp", "pp", "dcp"), alone)
    stubs.install(pathlib.Path(folder), "0.23.0", "A2", groups, types.SimpleNamespace(in_profile_run=False))
    from vllm_ascend.ops.fused_moe import token_dispatcher
    from vllm_ascend.ops.fused_moe.moe_runtime_args import build_fused_experts_input, build_token_dispatch_input
    from vllm_ascend.quantization.quant_type import QuantType

    made = token_dispatcher.TokenDispatcherWithAllGather(top_k=top_k, num_experts=experts, num_local_experts=experts)
    some = torch.empty(experts, 1, 1)

    def dispatch(x, weights, ids, mode):
        given = build_fused_experts_input(
            hidden_states=x, topk_weights=weights, topk_ids=ids, w1=some, w2=some, w1_scale=None, w2_scale=None, dynamic_eplb=False,
            quant_type=QuantType.NONE if mode == -1 else QuantType.W8A8)
        sent = made.token_dispatch(build_token_dispatch_input(fused_experts_input=given))
        return sent.hidden_states, lambda out: made.token_combine(out, sent.combine_metadata)
    return dispatch


def plain_dispatch(x, weights, ids, mode):
    """The same in torch's own operators."""
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    torch.bincount(flat, minlength=int(ids.max()) + 1)
    rows = x[order // ids.shape[1]]
    if mode == 1:
        wide = rows.float()
        rows = torch.round(wide / (wide.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)
    index = torch.argsort(order)

    def combine(out):
        back = out[index].view(*ids.shape, -1).float()
        return (back * weights.float().unsqueeze(-1)).sum(1).to(out.dtype)

    return rows, combine


def main():
    x = torch.randn(4, 64).bfloat16()
    for measure, kind in ((medians, "wall"), (processor_us, "processor")):
        of_python, of_c = measure([lambda: operators.dynamic_quant(x), c_calls(x)])
        print(f"a call of dynamic_quant, 4 rows of 64: {of_python:.1f} us of {kind} time from Python, {of_c:.1f} us in C: "
              f"{of_python - of_c:.1f} us more")
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    print(f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads; AllGather's dispatch and combine "
          f"{'of vllm-ascend 0.23.0' if folder else 'by their operators'}, T = 512\n")
    print("| shape | rows | moecl us | torch us | torch / moecl |\n| --- | --- | --- | --- | --- |")
    for shape, (hidden, experts, top_k) in SHAPES.items():
        random = torch.Generator().manual_seed(1)
        x = torch.randn(512, hidden, generator=random).bfloat16()
        chosen = torch.randn(512, experts, generator=random).softmax(-1).topk(top_k, -1)
        weights, ids = chosen.values.bfloat16(), chosen.indices.to(torch.int32)
        ours = dispatcher(folder, hidden, experts, top_k)
        for mode, name in ((-1, "bf16"), (1, "int8")):
            out = torch.randn(512 * top_k, hidden, generator=random).bfloat16()

            def layer(dispatch):
                return dispatch(x, weights, ids, mode)[1](out)

            torch.testing.assert_close(layer(ours).float(), layer(plain_dispatch).float(), rtol=2**-7, atol=2**-7)
            times = medians([lambda: layer(ours), lambda: layer(plain_dispatch)])
            print(f"| {shape} | {name} | {times[0]:.0f} | {times[1]:.0f} | {times[1] / times[0]:.1f} |")


if __name__ == "__main__":
    main()
