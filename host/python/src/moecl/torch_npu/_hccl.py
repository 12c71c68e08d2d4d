"""The backend "hccl" of torch.distributed: ranks are processes of one machine, connected by Unix sockets.

A collective has completed when its call returns, and so has the work object that it returns. Sums are of float32, or of
whole numbers, in order of rank, so every rank gets the same bits. Ranks find each other through torch's store, so
file://, tcp:// and env:// all work.
"""
# mypy: disable-error-code="override"
from __future__ import annotations

import multiprocessing.connection
import os
import pickle
import queue
import tempfile
import threading
from datetime import timedelta
from typing import Any, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
from torch.futures import Future

from moecl._binding import ffi

groups: dict[str, Any] = {}  # by name; a ThreadGroup of _distribute has the same functions


def group_of(name: str) -> Any:
    """The group with the name that get_hccl_comm_name returned."""
    if name not in groups:
        raise RuntimeError(f"group '{name}' is none of this process; there are {sorted(groups)}")
    return groups[name]


def _done(result: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class _Links:
    """A connection to every other rank. Received messages are queued until they are taken."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self.rank, self.size, self.seconds = rank, size, timeout.total_seconds()
        self.inbox: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self.out: list[Any] = [None] * size
        if size == 1:
            return
        if rank == 0:
            store.set("hccl/key", os.urandom(16).hex())
        key = store.get("hccl/key")
        folder = tempfile.mkdtemp(prefix="moecl-hccl-")
        address = os.path.join(folder, "socket")
        with multiprocessing.connection.Listener(address, "AF_UNIX", backlog=size, authkey=key) as listener:
            store.set(f"hccl/{rank}", address)
            for peer in range(rank):
                link = multiprocessing.connection.Client(store.get(f"hccl/{peer}").decode(), "AF_UNIX", authkey=key)
                link.send(rank)
                self.out[peer] = link
            listener._listener._socket.settimeout(self.seconds)  # type: ignore[attr-defined]
            try:
                for _ in range(rank + 1, size):
                    link = listener.accept()
                    self.out[link.recv()] = link
            except TimeoutError:
                late = [peer for peer in range(rank + 1, size) if self.out[peer] is None]
                raise RuntimeError(f"hccl: ranks {late} did not come within {self.seconds:.0f} s") from None
        os.rmdir(folder)
        for peer, link in enumerate(self.out):
            if link is not None:
                threading.Thread(target=self._receive, args=(peer, link), daemon=True).start()

    def _receive(self, peer: int, link: Any) -> None:
        try:
            while True:
                self.inbox[peer].put(link.recv_bytes())
        except (EOFError, OSError):
            self.inbox[peer].put(None)

    def exchange(self, parts: Sequence[Any]) -> list[Any]:
        """Sends parts[r] to each rank r. Returns each rank's part for this one. All ranks call it in the same order."""
        for peer in range(self.size):
            if peer != self.rank:
                self.out[peer].send_bytes(parts[peer])
        return [parts[peer] if peer == self.rank else self._take(peer) for peer in range(self.size)]

    def _take(self, peer: int) -> Any:
        try:
            data = self.inbox[peer].get(timeout=self.seconds)
        except queue.Empty:
            raise RuntimeError(f"hccl: rank {peer} did not come within {self.seconds:.0f} s") from None
        if data is None:
            self.inbox[peer].put(None)
            raise RuntimeError(f"hccl: rank {peer} has left")
        return data


def _bytes(tensor: torch.Tensor) -> bytes:
    """A copy, since the tensor may be freed meanwhile. Not by NumPy: a tensor that NumPy has seen cannot be freed."""
    tensor = tensor.detach().contiguous()
    return bytes(ffi.buffer(ffi.cast("char*", tensor.data_ptr()), tensor.numel() * tensor.element_size())) if tensor.numel() else b""


def _tensor(data: Any, like: torch.Tensor) -> torch.Tensor:
    if len(data) == 0:
        return torch.empty(0, dtype=like.dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(like.dtype)


def _reduced(parts: Sequence[torch.Tensor], op: Any) -> torch.Tensor:
    wide = torch.float64 if parts[0].dtype == torch.float64 else torch.float32 if parts[0].is_floating_point() else torch.int64
    total = parts[0].to(wide)
    kind = getattr(op, "op", op)
    for part in parts[1:]:
        part = part.to(wide)
        if kind in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            total = total + part
        elif kind == dist.ReduceOp.MAX:
            total = torch.maximum(total, part)
        elif kind == dist.ReduceOp.MIN:
            total = torch.minimum(total, part)
        elif kind == dist.ReduceOp.PRODUCT:
            total = total * part
        else:
            raise NotImplementedError(f"hccl: reduction {op}; there are sum, avg, max, min and product")
    if kind == dist.ReduceOp.AVG:
        total = total / len(parts)
    return total.to(parts[0].dtype)


class HcclGroup(dist.ProcessGroup):
    """A group of ranks. This process is one of them."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._rank, self._size = rank, size
        self._links = _Links(store, rank, size, timeout)
        if rank == 0:
            store.set("hccl/name", f"moecl-hccl-{os.getpid()}-{len(groups)}")
        self._hccl_name = store.get("hccl/name").decode()
        groups[self._hccl_name] = self
        # For _distribute: the moecl.RankGroup, this rank's communicator in it, and the number of earlier groups.
        self.operator_ranks: Any = None
        self.communicator: Any = None
        self.operator_groups = 0

    def get_hccl_comm_name(self, rank: int, init_comm: bool = True) -> str:
        """The name by which moe_distribute_* find the group."""
        return self._hccl_name

    def _get_backend(self, device: Any) -> HcclGroup:
        return self

    def getBackendName(self) -> str:  # noqa: N802
        return "hccl"

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    @property
    def pg_name(self) -> str:
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self) -> str:
        return self.pg_name

    def gather_objects(self, mine: Any) -> list[Any]:
        """The objects of all ranks, in order of rank."""
        data = pickle.dumps(mine)
        return [mine if rank == self._rank else pickle.loads(part)
                for rank, part in enumerate(self._links.exchange([data] * self._size))]

    def _everywhere(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [_tensor(part, tensor) for part in self._links.exchange([_bytes(tensor)] * self._size)]

    def barrier(self, opts: Any = None) -> Any:
        self._links.exchange([b""] * self._size)
        return _done(None)

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for tensor in tensors:
            tensor.copy_(_reduced(self._everywhere(tensor), op).view(tensor.shape))
        return _done(tensors)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:
        for tensor in tensors:
            total = _reduced(self._everywhere(tensor), opts.reduceOp)
            if self._rank == opts.rootRank:
                tensor.copy_(total.view(tensor.shape))
        return _done(tensors)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:
        for tensor in tensors:
            parts = self._links.exchange([_bytes(tensor) if self._rank == opts.rootRank else b""] * self._size)
            if self._rank != opts.rootRank:
                tensor.copy_(_tensor(parts[opts.rootRank], tensor).view(tensor.shape))
        return _done(tensors)

    def allgather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs):
            for to, part in zip(output, self._everywhere(tensor)):
                to.copy_(part.view(to.shape))
        return _done(outputs)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        output.copy_(torch.cat(self._everywhere(tensor)).view(output.shape))
        return _done(output)

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for output, parts in zip(outputs, inputs):
            came = self._links.exchange([_bytes(part) for part in parts])
            output.copy_(_reduced([_tensor(part, output) for part in came], op).view(output.shape))
        return _done(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter([output], [list(tensor.contiguous().view(-1).chunk(self._size))] if tensor.numel() else
                                   [[tensor] * self._size], opts)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        for output, part in zip(outputs, self._links.exchange([_bytes(tensor) for tensor in inputs])):
            output.copy_(_tensor(part, output).view(output.shape))
        return _done(outputs)

    def all_to_all_single(self, output: torch.Tensor, tensor: torch.Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any = None) -> Any:
        def rows(of: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
            if len(splits) == 0:
                if of.shape[0] % self._size:
                    raise RuntimeError(f"hccl: {of.shape[0]} rows of {what} do not divide among {self._size} ranks")
                return [of.shape[0] // self._size] * self._size
            counts = [int(count) for count in splits]
            if len(counts) != self._size or sum(counts) != of.shape[0]:
                raise RuntimeError(f"hccl: splits {counts} of {what} are not {self._size} that add up to {of.shape[0]} rows")
            return counts

        received = rows(output, output_splits, "the output")
        parts = torch.split(tensor, rows(tensor, input_splits, "the input"))
        for rank, (to, part) in enumerate(zip(torch.split(output, received), self._links.exchange([_bytes(p) for p in parts]))):
            came = _tensor(part, output)
            if came.numel() != to.numel():
                raise RuntimeError(f"hccl: rank {rank} sent {came.numel()} elements, {to.numel()} were expected")
            to.copy_(came.view(to.shape))
        return _done(output)

    def gather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any) -> Any:
        came = self._links.exchange([_bytes(inputs[0]) if rank == opts.rootRank else b"" for rank in range(self._size)])
        if self._rank == opts.rootRank:
            for to, part in zip(outputs[0], came):
                to.copy_(_tensor(part, to).view(to.shape))
        return _done(outputs)

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any) -> Any:
        root = opts.rootRank
        came = self._links.exchange([_bytes(part) for part in inputs[0]] if self._rank == root else [b""] * self._size)
        outputs[0].copy_(_tensor(came[root], outputs[0]).view(outputs[0].shape))
        return _done(outputs)

    # The names of these collectives in older versions of torch.
    _allgather_base = all_gather_single  # type: ignore[assignment]
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    alltoall_base = all_to_all_single  # type: ignore[assignment]


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> HcclGroup:
    return HcclGroup(store, rank, size, timeout)


def install() -> None:
    dist.Backend.register_backend("hccl", _create, devices=["cpu", "npu"])
