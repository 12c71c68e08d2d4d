#!/usr/bin/env python3
"""The products and layers of a `moecl bench --json` result by PyTorch on the same GPU, in one table.

usage: torch_products.py RESULT.json [OUT.json]

Products (gate_up, down): torch._grouped_mm over rows that are gathered already, which moecl's gate_up does itself. Layers: gather, product,
activation, product and weighted sum of given experts and weights, as a CUDA graph; moecl's have router and top-k too.
bf16 only: torch has no grouped product of int8 or of fp8 in blocks. Each result is compared with float64 before it is timed.
"""
import collections
import json
import re
import statistics
import sys

import torch


def microseconds(call):
    """Median of replays of a CUDA graph of `call`."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(25):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def measure(kind, shape, tokens):
    """`shape`: one of the document's context."""
    hidden, intermediate, experts, top_k = (shape[size] for size in ("hidden", "intermediate", "experts", "top_k"))
    torch.manual_seed(0)
    like = dict(device="cuda", dtype=torch.bfloat16)
    gate_up = torch.randn(experts, hidden, 2 * intermediate, **like) / hidden**0.5
    down = torch.randn(experts, intermediate, hidden, **like) / intermediate**0.5
    x = torch.randn(tokens, hidden, **like)
    chosen = torch.rand(tokens, experts, device="cuda").topk(top_k).indices.flatten()
    order = chosen.argsort(stable=True)
    source = order // top_k
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32)
    weights = torch.rand(tokens * top_k, 1, **like)[order]
    rows = x[source]

    expert, row = int(chosen[order[-1]]), len(source) - 1
    expected = rows[row].double() @ gate_up[expert].double()
    error = (torch._grouped_mm(rows, gate_up, offs=ends)[row].double() - expected).abs().max() / expected.abs().max()
    assert error < 1e-2, f"{shape}, {tokens} tokens: the peer is wrong by {error}"

    def layer():
        gate, up = torch._grouped_mm(x[source], gate_up, offs=ends).chunk(2, -1)
        out = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down, offs=ends) * weights
        return torch.zeros_like(x).index_add_(0, source, out)

    inner = torch.randn(len(source), intermediate, **like)
    return microseconds({"layer": layer, "gate_up": lambda: torch._grouped_mm(rows, gate_up, offs=ends),
                         "down": lambda: torch._grouped_mm(inner, down, offs=ends)}[kind])


def main():
    result = json.load(open(sys.argv[1]))
    shapes = result["context"]["shapes"]
    times = collections.defaultdict(list)
    for entry in result["benchmarks"]:
        name = re.fullmatch(r"(layer|gate_up|down)/([^/]+)/bf16/T:(\d+)/moecl(/.*)?", entry["name"])
        if name and name[2] in shapes and entry.get("run_type") == "iteration":
            scale = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[entry["time_unit"]]
            times[name[1], name[2], int(name[3])].append(entry["real_time"] * scale)
    entries = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'benchmark':50} {'moecl us':>10} {'torch us':>10} {'torch/moecl':>12}")
    for (kind, shape, tokens), measured in times.items():
        ours, theirs = statistics.median(measured), measure(kind, shapes[shape], tokens)
        label = f"{kind}/{shape}/bf16/T:{tokens}"
        entries.append({"name": label, "moecl_us": ours, "torch_us": theirs})
        print(f"{label:50} {ours:10.1f} {theirs:10.1f} {theirs / ours:12.2f}", flush=True)
    if not entries:
        sys.exit("torch_products: no bf16 product or layer of a known shape in " + sys.argv[1])
    if len(sys.argv) > 2:
        json.dump(entries, open(sys.argv[2], "w"), indent=1)


main()
