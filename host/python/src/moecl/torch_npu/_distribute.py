"""Runs moe_distribute_* over ranks. Ranks are processes that join a group and do their own rank's work, or threads
(`run_ranks`). Both ways run moecl's operators unchanged, so the bits are the same."""
from __future__ import annotations

import itertools
import threading
from typing import Any, Callable

import moecl
from moecl.torch_npu import _hccl

_numbers = itertools.count()


class ThreadGroup:
    """A group of ranks that are threads of this process."""

    def __init__(self, ranks: moecl.RankGroup) -> None:
        self._mine, self._said = threading.local(), [None] * len(ranks.streams)
        self._barrier = threading.Barrier(len(ranks.streams))

    @property
    def communicator(self) -> moecl.Communicator:
        return self._mine.communicator

    def size(self) -> int:
        return self.communicator.size

    def rank(self) -> int:
        return self.communicator.rank

    def gather_objects(self, mine: Any) -> list[Any]:
        self._said[self.rank()] = mine
        self._barrier.wait()
        said = list(self._said)
        self._barrier.wait()
        return said

    def reduce_scatter_single(self, output: Any, tensor: Any) -> None:
        output.copy_(self.communicator.reduce_scatter(tensor))


def run_ranks(count: int, function: Callable[[str, int], Any]) -> list[Any]:
    """Calls function(group name, rank) in a thread for each rank, without processes, and returns the results. The group
    name is for the parameters group_ep and hcom. An error of one rank is raised here."""
    ranks = moecl.RankGroup(count)
    name, group = f"moecl-threads-{next(_numbers)}", ThreadGroup(ranks)
    _hccl.groups[name] = group

    def rank(on: moecl.Communicator) -> Any:
        group._mine.communicator = on
        try:
            return function(name, on.rank)
        except BaseException:
            group._barrier.abort()
            raise

    try:
        return ranks.run(rank)
    finally:
        del _hccl.groups[name]


def together(group: Any, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """This rank's result of an operator that all ranks of the group call."""
    if isinstance(group, ThreadGroup):
        return function(group.communicator, **arguments)
    if group.operator_ranks is None:
        name = f"{group.get_hccl_comm_name(group.rank())}-{group.operator_groups}"
        group.operator_ranks = moecl.RankGroup.join(name, group.rank(), group.size(), deadline_ms=600_000)
        group.communicator = group.operator_ranks.communicator(group.rank())
    try:
        return function(group.communicator, **arguments)
    except moecl.Error:
        if group.operator_ranks.failure:  # the group has ended: the next operator joins a new one
            group.operator_ranks = None
            group.operator_groups += 1
        raise
