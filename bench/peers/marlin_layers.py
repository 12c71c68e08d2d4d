#!/usr/bin/env python3
"""The weight-only layers of a `moecl bench --json` result by vLLM's Marlin on the same GPU.

usage: marlin_layers.py MOECL.json OUT.json LIBRARY.so...
  LIBRARY.so  of a vLLM wheel: _moe_C*.so and _C*.so

A layer is router (cuBLAS), top-k, alignment, both products, SiLU and sum, and the shared experts of DeepSeek-V3 in bf16 on a stream beside, as vLLM
launches them. Times: a CUDA graph of eight passes or more over as many sets of weights as exceed the cache, the median of replays of 25 ms after a pause.
The codes are random bits in Marlin's packing, so only times are compared; the experts are those of a random router.
"""
import json
import math
import re
import statistics
import sys
import time

import torch

BF16 = dict(device="cuda", dtype=torch.bfloat16)
# vLLM's number of the codes' type, columns of a scale, and the scales' type.
SCHEMES = {
    "int4_w4a16": (1125899907892224, 128, torch.bfloat16),
    "mxfp4_w4a16": (562949953487106, 32, torch.float8_e8m0fnu),
}
CACHE_BYTES = 128e6


class Layer:
    def __init__(self, size, scheme, tokens):
        self.hidden, self.inner, self.experts, self.top_k = (size[key] for key in ("hidden", "intermediate", "experts", "top_k"))
        self.type, self.group, self.scales = SCHEMES[scheme]
        self.tokens, self.slots = tokens, tokens * self.top_k
        self.is_deepseek = size["is_deepseek"]
        self.x, self.out = torch.randn(tokens, self.hidden, **BF16), torch.empty(tokens, self.hidden, **BF16)
        self.first = torch.empty(self.slots, 2 * self.inner, **BF16)
        self.activated = torch.empty(self.slots, self.inner, **BF16)
        self.rows = torch.empty(self.slots, self.hidden, **BF16)
        self.locks = torch.zeros(4 * torch.cuda.get_device_properties(0).multi_processor_count, dtype=torch.int32, device="cuda")
        # As vLLM chooses it.
        self.block = next((rows for rows in (8, 16, 32, 48, 64) if self.slots / self.experts / rows < 0.9), 64)
        self.side = torch.cuda.Stream()
        router = torch.randn(self.experts, self.hidden, **BF16) * self.hidden**-0.5
        self.active = int(self.choose(router)[1].unique().numel())
        bytes_of_expert = 1.5 * self.hidden * self.inner
        count = min(max(math.ceil(CACHE_BYTES / (self.active * bytes_of_expert)), 1), 12)
        self.sets = [self.weights(router.clone()) for _ in range(count)]

    def matrix(self, n, k):
        codes = torch.randint(-(2**31), 2**31 - 1, (self.experts, k // 16, n * 2), dtype=torch.int32, device="cuda")
        scales = torch.full((self.experts, k // self.group, n), 0.0078125, **BF16).to(self.scales)
        return codes, scales

    def weights(self, router):
        one = dict(router=router, first=self.matrix(2 * self.inner, self.hidden), second=self.matrix(self.hidden, self.inner))
        if self.is_deepseek:
            one["shared_first"] = torch.randn(2 * self.inner, self.hidden, **BF16) * self.hidden**-0.5
            one["shared_second"] = torch.randn(self.hidden, self.inner, **BF16) * self.inner**-0.5
        return one

    def choose(self, router):
        logits = torch.mm(self.x, router.t())
        if self.is_deepseek:
            bias = torch.zeros(self.experts, device="cuda")
            return torch.ops._moe_C.grouped_topk(logits.float(), 8, 4, self.top_k, True, 2.5, bias, 1)
        weights = torch.empty(self.tokens, self.top_k, device="cuda")
        ids, sources = (torch.empty(self.tokens, self.top_k, device="cuda", dtype=torch.int32) for _ in range(2))
        torch.ops._moe_C.topk_softmax(weights, ids, sources, logits, True, None, None)
        return weights, ids

    def align(self, ids):
        room = min(self.slots * self.block, self.slots + self.experts * (self.block - 1))
        like = dict(dtype=torch.int32, device="cuda")
        order = torch.empty(room, **like), torch.empty(-(-room // self.block), **like), torch.empty(1, **like)
        torch.ops._moe_C.moe_align_block_size(ids, self.experts, self.block, *order, None, None)
        return order

    def product(self, a, out, matrix, order, weights, is_first):
        codes, scales = matrix
        rows, of_rows, n, k = (self.tokens, self.top_k, 2 * self.inner, self.hidden) if is_first else (self.slots, 1, self.hidden, self.inner)
        torch.ops._moe_C.moe_wna16_marlin_gemm(
            a, out, codes, None, scales, None, None, None, self.locks, *order, weights, self.block, of_rows, not is_first, self.type, rows, n, k, False, True, False, -1, -1, -1)

    def shared(self, one):
        both = torch.mm(self.x, one["shared_first"].t())
        activated = torch.empty(self.tokens, self.inner, **BF16)
        torch.ops._C.silu_and_mul(activated, both)
        return torch.mm(activated, one["shared_second"].t())

    def run(self, one):
        beside = self.is_deepseek and self.tokens <= 256
        if beside:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                shared = self.shared(one)
        weights, ids = self.choose(one["router"])
        order = self.align(ids)
        self.product(self.x, self.first, one["first"], order, weights, True)
        torch.ops._C.silu_and_mul(self.activated, self.first)
        self.product(self.activated, self.rows, one["second"], order, weights, False)
        torch.ops._moe_C.moe_sum(self.rows.view(self.tokens, self.top_k, self.hidden), self.out, None, None)
        if beside:
            torch.cuda.current_stream().wait_stream(self.side)
        elif self.is_deepseek:
            shared = self.shared(one)
        if self.is_deepseek:
            self.out.add_(shared)

    def microseconds(self):
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for one in self.sets:
                self.run(one)
            stream.synchronize()
            assert torch.isfinite(self.out).all(), "no numbers"
            passes = math.ceil(8 / len(self.sets)) * len(self.sets)
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            for i in range(passes):
                self.run(self.sets[i % len(self.sets)])
            graph.capture_end()
            stream.synchronize()
            time.sleep(0.15)
            graph.replay()
            times = []
            while len(times) < 3 or (len(times) < 100 and sum(times) * passes < 25e3):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / passes)
        return statistics.median(times)


def main():
    torch.manual_seed(0)
    document = json.load(open(sys.argv[1]))
    for library in sys.argv[3:]:
        torch.ops.load_library(library)
    ratios, points = {}, []
    for entry in document["benchmarks"]:
        found = re.fullmatch(r"layer/([^/]+)/([^/]+)/T:(\d+)/moecl(/.*)?", entry["name"])
        if not found or found[2] not in SCHEMES or entry.get("run_type") != "iteration":
            continue
        shape, scheme, tokens = found[1], found[2], int(found[3])
        size = dict(document["context"]["shapes"][shape], is_deepseek=shape.startswith("deepseek-v3"))
        ours = entry["real_time"] * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[entry["time_unit"]]
        layer = Layer(size, scheme, tokens)
        point = dict(shape=shape, scheme=scheme, tokens=tokens, moecl_us=ours, marlin_us=layer.microseconds(), active=layer.active, block=layer.block)
        del layer
        torch.cuda.empty_cache()
        ratio = point["marlin_us"] / ours
        print(f"{shape:18} {scheme:12} T={tokens:<6} moecl {ours:8.1f} us, Marlin {point['marlin_us']:8.1f} us, {ratio:.2f}, {point['active']} experts", flush=True)
        points.append(point)
        ratios.setdefault((scheme, "T <= 64" if tokens <= 64 else "T > 64"), []).append(ratio)
    for (scheme, which), of in ratios.items():
        print(f"{scheme}, {which}: {statistics.geometric_mean(of):.3f} of {len(of)} points")
    json.dump(points, open(sys.argv[2], "w"), indent=1)


if __name__ == "__main__":
    main()
