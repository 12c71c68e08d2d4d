#!/usr/bin/env python3
"""The peer of the `exchange/` benchmarks: NCCL's all_to_all of the same rows, equal splits, by torch.distributed.

usage: nccl_all_to_all.py [RANKS]

Prints a line a size: median time of a call, alone and replayed from a CUDA graph, and GB/s out of a GPU. Ranks are
processes of this machine and meet through a file.
"""
import datetime
import os
import statistics
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HIDDEN, TOP_K = 7168, 8
TOKENS = (16, 128, 4096)
CHAIN, ROUNDS = 16, 20


def median_seconds(call):
    """Of one of a chain of calls."""
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        for _ in range(CHAIN):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / CHAIN)
    return statistics.median(times)


def rank_main(rank, ranks, meeting_place):
    # A machine without a network has the loopback interface alone, which NCCL does not choose by itself everywhere.
    # Multicast over NVLink stays off: a fault of it takes the GPUs of the whole machine along.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting_place}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60), device_id=torch.device("cuda", rank))
    for tokens in TOKENS:
        rows = torch.zeros(tokens * TOP_K, HIDDEN, dtype=torch.bfloat16, device="cuda")
        out = torch.empty_like(rows)
        for _ in range(3):
            dist.all_to_all_single(out, rows)
        eager = median_seconds(lambda: dist.all_to_all_single(out, rows))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog asks for its events meanwhile
            dist.all_to_all_single(out, rows)
        replayed = median_seconds(graph.replay)
        torch.cuda.synchronize()
        graph.reset()  # a communicator is not destroyed before the graphs that hold it
        leaving = rows.numel() * rows.element_size() * (ranks - 1) / ranks
        if rank == 0:
            print(f"nccl_all_to_all/bf16/K:{TOP_K}/H:{HIDDEN}/ranks:{ranks}/T:{tokens} "
                  f"eager {eager * 1e6:.1f} us {leaving / eager / 1e9:.1f} GB/s, "
                  f"graph {replayed * 1e6:.1f} us {leaving / replayed / 1e9:.1f} GB/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(count, os.path.join(folder, "ranks")), nprocs=count)
