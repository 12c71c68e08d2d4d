"""Fails allocations of the `moecl` command, one after the other: each run must end in time, with a status and a sentence.

usage: allocations.py MOECL failing_memory.so GOLDEN_DIR [--runs N]
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
    parser.add_argument("preload")
    parser.add_argument("golden")
    parser.add_argument("--runs", type=int, help="of each kind, spread over all allocations; default: every allocation")
    given = parser.parse_args()
    moecl, golden = os.path.abspath(given.moecl), os.path.abspath(given.golden)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        base = {**os.environ, "LD_PRELOAD": os.path.abspath(given.preload), "XDG_DATA_HOME": folder,
                "MOECL_COMPILE": "in_process"}  # whose allocations are counted
        for verb in ("run", "verify"):
            command = [moecl, verb, golden, "--platform", "Portable"] + (
                ["--tokens", "4", "--json", "--output", f"{folder}/out"] if verb == "run" else [])
            count = pathlib.Path(folder, "count")
            for _ in range(2):  # the second has the programs of the first
                subprocess.run(command, env={**base, "COUNT_ALLOCATIONS": str(count)}, check=True, capture_output=True)
            total = int(count.read_text())
            chosen = range(1, total + 1, max(1, total // given.runs) if given.runs else 1)
            tally.each([(f"{verb}, allocation {n}{' and all after' if after else ''}", command,
                         {"env": {**base, "FAIL_ALLOCATION": str(n), "FAIL_ALLOCATIONS_AFTER": str(after)}})
                        for after in (0, 1) for n in chosen])
    return tally.close("failing allocations")


if __name__ == "__main__":
    sys.exit(main())
