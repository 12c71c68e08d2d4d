"""A process of MPI. Prints its ranks and what they gathered.

usage: mpi_ranks.py own|world

own    over a communicator of mpi4py in which processes count backwards: its first one has one rank, the next one two
world  over MPI's own, which moecl initialises; by messages of MPI alone
"""
import json
import sys

import numpy

import moecl

MPI_ALONE = 5
if sys.argv[1] == "own":
    from mpi4py import MPI

    engine = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)
    group = moecl.RankGroup.from_mpi(engine, engine.rank + 1)
else:
    group = moecl.RankGroup.from_mpi(transport=MPI_ALONE)
gathered = group.run(lambda on: on.all_gather(numpy.full(1, on.rank, "i4"), [1] * on.size).tolist())
size = len(group.members())
ways = {group.transport(sender, receiver)["transport"] for receiver in group.streams for sender in range(size) if sender != receiver}
print(json.dumps([list(group.streams), gathered, sorted(ways)]), flush=True)
