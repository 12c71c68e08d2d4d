"""Fails allocations of the `moecl` command, and of an engine that has moecl as a library, one after the other: each run must
end in time, with a status and a sentence.

usage: allocations.py MOECL CALLER failing_memory.so GOLDEN_DIR [--runs N]

CALLER is the program of caller.c: unlike the command it has no words of its own for std::terminate.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from runs import Tally


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("moecl")
    parser.add_argument("caller")
    parser.add_argument("preload")
    parser.add_argument("golden")
    parser.add_argument("--runs", type=int, help="of each kind, spread over all allocations; default: every allocation")
    given = parser.parse_args()
    moecl, caller, golden = (os.path.abspath(path) for path in (given.moecl, given.caller, given.golden))
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        base = {**os.environ, "LD_PRELOAD": os.path.abspath(given.preload), "XDG_DATA_HOME": folder,
                "MOECL_COMPILE": "in_process"}  # whose allocations are counted
        verify = [moecl, "verify", golden, "--platform", "Portable"]
        for what, command in (
                ("run", [moecl, "run", golden, "--platform", "Portable", "--tokens", "4", "--json", "--output", f"{folder}/out"]),
                ("verify", verify), ("verify by 3 ranks", verify + ["--ranks", "3", "--ep", "--strategy", "mc2"]),
                ("engine", [caller, golden]), ("engine of 3 ranks", [caller, "3", "staged"])):
            count = pathlib.Path(folder, "count")
            for _ in range(2):  # the second has the programs of the first
                subprocess.run(command, env={**base, "COUNT_ALLOCATIONS": str(count)}, check=True, capture_output=True)
            total = int(count.read_text())
            chosen = range(1, total + 1, max(1, total // given.runs) if given.runs else 1)
            tally.each([(f"{what}, allocation {n}{' and all after' if after else ''}", command,
                         {"env": {**base, "FAIL_ALLOCATION": str(n), "FAIL_ALLOCATIONS_AFTER": str(after)}})
                        for after in (0, 1) for n in chosen])
    return tally.close("failing allocations")


if __name__ == "__main__":
    sys.exit(main())
