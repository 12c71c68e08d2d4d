"""One rank of the collectives of the backend "hccl", each against what it should give.

usage: python -m moecl.torch_npu collectives.py RANK RANKS INIT_METHOD
"""
import sys

import numpy
import torch
import torch.distributed as dist

rank, ranks, method = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("hccl", init_method=method, rank=rank, world_size=ranks)
everyone = range(ranks)


def equal(got, expected):
    assert torch.equal(got, torch.as_tensor(expected, dtype=got.dtype)), (got, expected)


total = torch.full((2, 3), rank + 1.0, dtype=torch.bfloat16, device=torch.npu.current_device())
dist.all_reduce(total)
equal(total, torch.full((2, 3), ranks * (ranks + 1) / 2))
largest = torch.tensor([rank, -rank])
dist.all_reduce(largest, dist.ReduceOp.MAX)
equal(largest, [ranks - 1, 0])

parts = [torch.empty(other + 1) for other in everyone]  # of different lengths
dist.all_gather(parts, torch.full((rank + 1,), float(rank)))
for other, part in enumerate(parts):
    equal(part, [float(other)] * (other + 1))
gathered = torch.empty(2 * ranks, 1, dtype=torch.int64)
dist.all_gather_into_tensor(gathered, torch.tensor([[rank], [10 * rank]]))
equal(gathered, [[value] for other in everyone for value in (other, 10 * other)])

mine = torch.empty(2)
dist.reduce_scatter_tensor(mine, torch.arange(2.0 * ranks) * (rank + 1))
equal(mine, [(2 * rank + i) * ranks * (ranks + 1) / 2 for i in range(2)])

splits = numpy.array([(rank + other) % 3 for other in everyone])  # some are 0
sent = torch.cat([torch.full((int(count), 2), 100.0 * rank + other) for other, count in enumerate(splits)])
got = torch.empty(int(splits.sum()), 2)
work = dist.all_to_all_single(got, sent, splits, splits, async_op=True)
work.wait()
equal(got, torch.cat([torch.full((int(count), 2), 100.0 * other + rank) for other, count in enumerate(splits)]))
assert work.is_completed()

rooted = torch.arange(4) * (rank == 1)
dist.broadcast(rooted, 1)
equal(rooted, [0, 1, 2, 3])
whole = [torch.empty(1) for _ in everyone] if rank == 0 else None
dist.gather(torch.tensor([float(rank)]), whole, 0)
if rank == 0:
    equal(torch.cat(whole), [float(other) for other in everyone])
said = [None] * ranks
dist.all_gather_object(said, {"rank": rank})
assert said == [{"rank": other} for other in everyone]

pair = dist.new_group([0, 1], backend="hccl")
if rank < 2:
    names = [None, None]
    backend = pair._get_backend(torch.device("npu"))
    dist.all_gather_object(names, backend.get_hccl_comm_name(dist.get_rank(pair)), group=pair)
    assert names[0] == names[1] and names[0] != dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    total = torch.ones(1)
    dist.all_reduce(total, group=pair)
    equal(total, [2.0])

try:
    dist.all_to_all_single(got, sent, [0] * ranks, [0] * ranks)
    raise AssertionError("splits that do not fit were taken")
except RuntimeError as error:
    assert "add up to" in str(error) or sent.shape[0] == 0
dist.barrier()
dist.destroy_process_group()
print("all agree")
