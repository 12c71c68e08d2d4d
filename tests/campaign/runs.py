"""What the parts of the campaign share: how a run ended, and the row of figures that they print."""
import collections
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

SECONDS = 20  # the longest that a run may take
STATUSES = (1, 3, 4)  # of a run that could not do its work


def outcome(command, seconds=SECONDS, **how):
    """("done" or "sentence", what it said), or what must not be: "abort", "hang", "silent", "other status"."""
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds, check=False,
                             **{"stdout": subprocess.PIPE, **how})
    except subprocess.TimeoutExpired:
        return "hang", ""
    said = run.stderr.decode(errors="replace")
    if run.returncode < 0:
        return "abort", said
    if run.returncode == 0:
        return "done", said
    if run.returncode not in STATUSES:
        return "other status", f"{run.returncode}: {said}"
    return ("sentence" if said.startswith("moecl: ") and said.endswith("\n") else "silent"), said


class Tally:
    """Counts runs, and keeps what must not have happened."""

    def __init__(self):
        self.ends, self.bad = collections.Counter(), []

    def add(self, what, end, said="", good=("done", "sentence")):
        self.ends[end] += 1
        if end not in good:
            self.bad.append(f"{what}: {end}: {said.strip()}")

    def each(self, runs):
        """Runs (what, command, how) on all cores."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for (what, _, _), (end, said) in zip(runs, pool.map(lambda run: outcome(run[1], **run[2]), runs)):
                self.add(what, end, said)

    def close(self, title):
        """Prints a row of the README's table. The exit status: 1 where something must not have happened."""
        ends = self.ends
        print(f"| {title} | {sum(ends.values())} | {ends['abort']} | {ends['hang']} | {ends['silent']} |",
              f"{len(self.bad)} bad in all; {ends['sentence']} ended with a sentence, {ends['done']} did their work")
        print(*self.bad[:20], sep="\n", end="")
        return 1 if self.bad else 0
