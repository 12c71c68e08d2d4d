#!/usr/bin/env python3
"""Fails one OpenCL call of a small run of moecl, at every place, and looks at how the run ends.

usage: opencl.py MOECL CALLER LAYER DATA (--all | --sample SECONDS) [--seed N] [--runs REGEX] [--only REGEX]
       [--part I/N] [--jobs N]

MOECL   the command
CALLER  the program of caller.c, which frees what is its own after an error
LAYER   libopencl_faults.so, which fails the N-th call of an entry point (`error`), or gives the N-th command an event
        that turns negative later (`event`)
DATA    tests/data

--all takes every N of every entry point; --sample takes them in turns, in an order that the seed shuffles, until the
time is over. --runs takes the runs whose name matches, --only the places whose "entry point:N:mode" matches, --part
every N-th of them from the I-th on (of one seed): parts can be tried on several machines.

Each try has to end within 20 s: with the right result, or with an exit code from 2 to 4 and one sentence on stderr. In
either case every object has been released. Exit code 1 is a result that is wrong without an error.
"""
import argparse
import collections
import concurrent.futures
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

LIMIT_S = 20
OUTCOMES = ["right", "error", "abort", "hang", "silent", "wrong", "leak"]
GOOD = {"right", "error"}


class Run:
    """A run of the command whose calls are counted and failed."""

    def __init__(self, name, command, env=None):
        self.name, self.command, self.env = name, [str(part) for part in command], env or {}

    def start(self, layer, fault=None):
        """Exit code (None after LIMIT_S), stdout, stderr, and the lines of the layer's report."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report"
            # The calls of one process are counted: no helper compiles.
            env = {**os.environ, **self.env, "OPENCL_LAYERS": layer, "OPENCL_FAULT_REPORT": str(report),
                   "MOECL_COMPILE": "in_process"}
            if fault:
                env["OPENCL_FAULT"] = fault
            with subprocess.Popen(self.command, env=env, text=True, errors="replace", stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                try:
                    out, err = process.communicate(timeout=LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return None, "", "", []
            lines = report.read_text().splitlines() if report.exists() else []
            return process.returncode, out, err, lines


def runs_of(moecl, caller, data):
    verify = [moecl, "verify", "--platform", "Portable"]
    golden = data / "goldens" / "mixtral-k-equals-e"
    yield Run("1 rank", verify + [golden])
    yield Run("1 rank, shared experts beside", verify + [data / "goldens" / "qwen2-moe-e16k4", "--shared-queue", "own"])
    yield Run("1 rank, from source", verify + [data / "goldens" / "mixtral-t0"], {"MOECL_CACHE": "off"})
    for strategy in ["mc2", "allgather", "all2allv", "multicast"]:
        for transport in ["shared_context", "staged"]:
            yield Run(f"3 ranks, {strategy}, {transport}", verify + [
                golden, "--ranks", "3", "--ep", "--strategy", strategy, "--transport", transport])
    yield Run("2 ranks on sub-devices", verify + [golden, "--ranks", "2", "--ep", "--sub-devices"])
    yield Run("caller, 1 rank", [caller, golden])
    for transport in ["shared_context", "staged"]:
        yield Run(f"caller, 3 ranks, {transport}", [caller, "3", transport])


def count(run, layer):
    """(entry point, mode, calls) of a run in which nothing fails."""
    run.start(layer)  # compiles
    code, _, err, lines = run.start(layer)
    leaks = [line for line in lines if line.startswith("leaked")]
    if code != 0 or leaks:
        sys.exit(f"{run.name}: without a fault exit code {code}, {leaks}: {err}")
    for line in lines:
        name, calls, commands = line.split()
        yield name, "error", int(calls)
        if int(commands) > 0:
            yield name, "event", int(commands)


def classify(code, err, lines):
    if code is None:
        return "hang", f"no end within {LIMIT_S} s"
    if code < 0 or code > 4:
        return "abort", f"exit {code}: {err.strip()}"
    if code == 1:
        return "wrong", "a wrong result without an error"
    said = [line for line in err.splitlines() if line.startswith("moecl: ")]
    if code != 0 and len(said) != 1:
        return "silent", f"exit {code}: stderr: {err.strip()}"
    leaks = [line for line in lines if line.startswith("leaked")]
    if leaks:
        return "leak", f"{', '.join(leaks)}; exit {code}: {err.strip()}"
    return ("right", "") if code == 0 else ("error", said[0])


def interleaved(cells, seed):
    """One try of each cell in turns, so that a sample sees all entry points."""
    generator = random.Random(seed)
    lists = []
    for run, entry_point, mode, calls in cells:
        lists.append([(run, entry_point, mode, n) for n in generator.sample(range(1, calls + 1), calls)])
    generator.shuffle(lists)
    return [one for turn in itertools.zip_longest(*lists) for one in turn if one is not None]


def place_of(entry_point, mode, n):
    return f"{entry_point}:{n}:{mode}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("moecl")
    parser.add_argument("caller")
    parser.add_argument("layer")
    parser.add_argument("data", type=pathlib.Path)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--all", action="store_true")
    length.add_argument("--sample", type=float, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--runs", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1", type=lambda part: tuple(map(int, part.split("/"))))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()

    end = time.monotonic() + (options.sample if options.sample else float("inf"))
    runs = [run for run in runs_of(options.moecl, options.caller, options.data) if re.search(options.runs, run.name)]
    cells = [(run, *cell) for run in runs for cell in count(run, options.layer)]
    tries = [one for one in interleaved(cells, options.seed) if re.search(options.only, place_of(*one[1:]))]
    first, parts = options.part
    tries = tries[first - 1::parts]

    def attempt(one):
        run, entry_point, mode, n = one
        if time.monotonic() > end:
            return None
        code, _, err, lines = run.start(options.layer, place_of(entry_point, mode, n))
        return one, *classify(code, err, lines)

    table = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in filter(None, pool.map(attempt, tries)):
            (run, entry_point, mode, n), outcome, why = result
            table[entry_point, mode][outcome] += 1
            if outcome not in GOOD:
                print(f"{outcome}: {run.name}: {place_of(entry_point, mode, n)}: {why}", flush=True)

    print(f"{'entry point':<28} {'fails as':<8}" + "".join(f" {name:>6}" for name in ["tries"] + OUTCOMES))
    total = collections.Counter()
    for (entry_point, mode), row in sorted(table.items()):
        total += row
        print(f"{entry_point:<28} {mode:<8} {sum(row.values()):>6}" + "".join(f" {row[name]:>6}" for name in OUTCOMES))
    print(f"{'all':<37} {sum(total.values()):>6}" + "".join(f" {total[name]:>6}" for name in OUTCOMES))
    good = sum(total[name] for name in GOOD)
    print(f"seed {options.seed}, {len(tries)} places: {good} passed, {sum(total.values()) - good} failed")
    return 0 if sum(total.values()) == good > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
