"""moe_distribute_* of processes: each has the inputs of all, and runs all ranks by moecl's operators, in threads. So the
rows are those of one process with as many ranks, bit for bit; what travels is inputs, and the work is done by every
process."""
from __future__ import annotations

from typing import Any, Callable

import moecl
from moecl.torch_npu._hccl import HcclGroup


def together(group: HcclGroup, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """This rank's result of an operator that all ranks of the group call."""
    given = group.gather_objects(arguments)
    if group.operator_ranks is None:
        group.operator_ranks = moecl.RankGroup(group.size(), deadline_ms=600_000)
    ranks: moecl.RankGroup = group.operator_ranks
    try:
        return ranks.run(lambda on: function(on, **given[on.rank]))[group.rank()]
    except moecl.Error:
        group.operator_ranks = None  # a group that an operator ended is not used again
        raise
