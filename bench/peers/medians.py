#!/usr/bin/env python3
"""Medians over several runs of `moecl_bench_peers --json`, as rows of a Markdown table: each ratio is of one process.

usage: medians.py RUN.json [RUN.json ...]
"""
import collections
import json
import math
import statistics
import sys

BEST_ROOF = {"f32": "f32_gflops", "f16": "f32_gflops", "bf16": "bf16_gflops", "int8_w8a8": "int8_gops", "int4_w4a8": "int8_gops"}


def cases(path):
    """(case, microseconds of moecl, of the better peer or None, % of the arithmetic's peak, % of the read bandwidth)"""
    with open(path) as file:
        run = json.load(file)
    roof = run["context"]["roof"]
    times = {b["name"]: b for b in run["benchmarks"]}
    for name, ours in times.items():
        case, _, implementation = name.rpartition("/")
        if implementation != "moecl":
            continue
        peers = [times[f"{case}/{peer}"]["real_time"] for peer in ("onednn", "openblas", "ggml") if f"{case}/{peer}" in times]
        peak = roof[BEST_ROOF.get(case.split("/")[2], "bf16_gflops")]
        yield (case, ours["real_time"], min(peers) if peers else None, 100 * ours["GFLOP/s"] / peak,
               100 * ours["GB/s"] / roof["read_gb_per_s"])
    if run["context"]["slow_mode"]:
        print(f"{path}: slow mode", file=sys.stderr)


def main(paths):
    if not paths:
        sys.exit(__doc__)
    of_case = collections.defaultdict(list)
    for path in paths:
        for case, *figures in cases(path):
            of_case[case].append(figures)
    print("| case | us | better peer / moecl | % of peak | % of read |\n| --- | --- | --- | --- | --- |")
    ratios = []
    for case, runs in of_case.items():
        ours, _, peak, read = (statistics.median(values) if None not in values else None for values in zip(*runs))
        ratio = statistics.median(peer / time for time, peer, *_ in runs) if runs[0][1] else None
        ratios += [ratio] if ratio else []
        print(f"| {case} | {ours:.0f} | {f'{ratio:.2f}' if ratio else ''} | {peak:.0f} | {read:.0f} |")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\n{len(paths)} processes; geometric mean of {len(ratios)} ratios {mean:.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
