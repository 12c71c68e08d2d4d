#!/usr/bin/env python3
"""The layers of a `moecl bench --json` result by kt-kernel (PyPI) on the same CPU, in one table.

usage: kt_layers.py RESULT.json [OUT.json]

kt-kernel finds the experts chosen, where moecl has a router too. Its weights are bf16, or quantized from them to codes of 8 and 4 bits with
a scale a row. One thread computes, and its processor time counts: for a result under libmoecl_process_clock.so with one thread of PoCL.
Each result is compared with float64 before it is timed: within 1e-2 in bf16, 5e-2 in int8, 0.4 in int4, of the largest element of a row.
"""
import collections
import json
import math
import os
import pathlib
import re
import statistics
import sys

import torch
from kt_kernel import kt_kernel_ext

MOE = {"bf16": ("AMXBF16_MOE", "AVX2BF16_MOE", 2, 1e-2), "int8_w8a8": ("AMXInt8_MOE", None, 1, 5e-2), "int4_w4a8": ("AMXInt4_MOE", None, 0.5, 0.4)}
OUT_OF_CACHE = 128e6  # bytes that layers in turn read


def one_thread():
    config = kt_kernel_ext.WorkerPoolConfig()
    config.subpool_count, config.subpool_numa_map, config.subpool_thread_count = 1, [0], [1]
    return kt_kernel_ext.CPUInfer(config)


def worker_seconds():
    """Processor time of the thread that computes, which takes most; this one waits in a loop."""
    others = (task for task in pathlib.Path("/proc/self/task").iterdir() if task.name != str(os.getpid()))
    return max(int((task / "schedstat").read_text().split()[0]) for task in others) / 1e9


class Layers:
    def __init__(self, pool, scheme, shape, count):
        self.pool, self.hidden, self.top_k = pool, shape["hidden"], shape["top_k"]
        experts, intermediate = shape["experts"], shape["intermediate"]
        torch.manual_seed(0)
        self.gate, self.up, self.down = ((torch.randn(experts, n, k) / k**0.5).to(torch.bfloat16)
                                         for n, k in ((intermediate, self.hidden), (intermediate, self.hidden), (self.hidden, intermediate)))
        self.on_gpu = torch.zeros(experts, dtype=torch.bool)
        numbers = torch.arange(experts)
        first, second = MOE[scheme][:2]
        make = getattr(kt_kernel_ext.moe, first, None) or getattr(kt_kernel_ext.moe, second)
        self.layers = []
        for _ in range(count):
            config = kt_kernel_ext.moe.MOEConfig(experts, self.top_k, self.hidden, intermediate, self.on_gpu.data_ptr())
            config.pool, config.max_len = pool.backend_, 512
            for name in ("gate", "up", "down"):
                matrices = getattr(self, name)
                if scheme == "bf16":
                    setattr(config, name + "_projs", [[matrix.data_ptr() for matrix in matrices]])
                    setattr(config, name + "_scales", [])
                else:
                    setattr(config, name + "_proj", matrices.data_ptr())
            self.layers.append(make(config))
            pool.submit(self.layers[-1].load_weights_task(numbers.data_ptr()))
            pool.sync()

    def expect(self, tokens):
        self.x = torch.randn(tokens, self.hidden).to(torch.bfloat16)
        self.ids = torch.rand(tokens, len(self.gate)).topk(self.top_k).indices.contiguous()
        self.shares = torch.full((tokens, self.top_k), 1 / self.top_k)
        self.out = torch.empty_like(self.x)
        self.tokens = torch.tensor([tokens], dtype=torch.int32)

    def forward(self, turn):
        pointers = (tensor.data_ptr() for tensor in (self.ids, self.shares, self.x, self.out))
        self.pool.submit(self.layers[turn % len(self.layers)].forward_task(self.tokens.data_ptr(), self.top_k, *pointers, False))
        self.pool.sync()

    def error(self):
        x, expected = self.x[-1].double(), torch.zeros(self.hidden, dtype=torch.float64)
        for expert in self.ids[-1]:
            gate, up = self.gate[expert].double() @ x, self.up[expert].double() @ x
            expected += self.down[expert].double() @ (torch.nn.functional.silu(gate) * up) / self.top_k
        return float((self.out[-1].double() - expected).abs().max() / expected.abs().max())

    def microseconds(self):
        """Median of passes over the layers in turn."""
        times, turn = [], 0
        while len(times) < 5 or (sum(times) < 0.3 and len(times) < 100):
            before = worker_seconds()
            self.forward(turn := turn + 1)
            times.append(worker_seconds() - before)
        return statistics.median(times) * 1e6


def main():
    with open(sys.argv[1]) as file:
        result = json.load(file)
    shapes, times = result["context"]["shapes"], collections.defaultdict(list)
    for entry in result["benchmarks"]:
        name = re.fullmatch(r"layer/([^/]+)/([^/]+)/T:(\d+)/moecl(/.*)?", entry["name"])
        if name and name[1] in shapes and name[2] in MOE and entry.get("run_type") == "iteration":
            times[name[1], name[2], int(name[3])].append(entry["real_time"] * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[entry["time_unit"]])
    pool, loaded, entries = one_thread(), (None, None), []
    print(f"{'benchmark':50} {'moecl us':>10} {'kt us':>10} {'kt/moecl':>10}")
    for (shape, scheme, tokens), measured in sorted(times.items()):
        if loaded[0] != (shape, scheme):
            loaded = (None, None)
            of_expert = 3 * shapes[shape]["hidden"] * shapes[shape]["intermediate"] * MOE[scheme][2]
            loaded = ((shape, scheme), Layers(pool, scheme, shapes[shape], math.ceil(OUT_OF_CACHE / of_expert / shapes[shape]["top_k"])))
        layers = loaded[1]
        layers.expect(tokens)
        layers.forward(0)
        label, error = f"layer/{shape}/{scheme}/T:{tokens}", layers.error()
        if error > MOE[scheme][3]:
            sys.exit(f"{label}: kt-kernel is wrong by {error}")
        ours, theirs = statistics.median(measured), layers.microseconds()
        entries.append({"name": label, "moecl_us": ours, "kt_us": theirs})
        print(f"{label:50} {ours:10.1f} {theirs:10.1f} {theirs / ours:10.2f}", flush=True)
    if not entries:
        sys.exit("kt_layers: no layer in bf16, int8_w8a8 or int4_w4a8 in " + sys.argv[1])
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as file:
            json.dump(entries, file, indent=1)


if __name__ == "__main__":
    main()
