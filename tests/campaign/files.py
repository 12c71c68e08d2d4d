"""Full disks under every file that the `moecl` command writes, and `kill -9` at every operation on the program cache.

usage: files.py MOECL dying_writer.so GOLDEN_DIR [--runs N]
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from runs import SECONDS, Tally, outcome


@contextlib.contextmanager
def small_disk(folder, size):
    """How a run sees a folder on a disk of `size` bytes: a tmpfs, or where none may be mounted a limit on files."""
    folder.mkdir()
    mounted = size >= 4096 and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder],
                                              capture_output=True, check=False).returncode == 0
    limit = None if mounted else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        yield {"preexec_fn": limit}, mounted
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)
        shutil.rmtree(folder)


def operator_case(golden):
    """A recorded call beside the golden models."""
    return min(pathlib.Path(golden).parents[1].glob("operators/npu_dequant_swiglu_quant/*.json"))


def is_table(path):
    """A whole one of `tune`, which writes it anew after each measurement: where that fails, the last one stays."""
    try:
        return path.suffix == ".json" and "entries" in json.loads(path.read_text())
    except ValueError:
        return False


def full_disks(moecl, golden, sizes, tally, work):
    """Nothing but a sentence comes of it: no half file."""
    run = [moecl, "run", golden, "--platform", "Portable", "--tokens", "4"]
    bench = [moecl, "bench", "--filter", "^gather_rows", "--quick"]
    full = work / "full"
    writers = {"run --output": run + ["--output", full / "out"], "run --trace": run + ["--trace", full / "trace"],
               "op --output": [moecl, "op", operator_case(golden), "--platform", "Portable", "--output", full / "out"],
               "generate": [moecl, "generate", full / "model", "--config", f"{golden}/config.json"],
               "bench --report": bench + ["--report", full / "report"],
               "tune": [moecl, "tune", "--filter", "combine", "--platform", "Portable", "--quiet"],
               "tune, the other table": [moecl, "tune", "--filter", "dense", "--platform", "Portable", "--quiet"]}
    for what, command in writers.items():
        seconds = 120 if command[1] in ("bench", "tune") else SECONDS  # they measure
        # The programs are compiled, so no other file is written.
        subprocess.run(command[:-2] if command[1] == "op" else run, check=True, capture_output=True)
        # A limit on files would be PoCL's too as it compiles CLBlast's kernels: that table wants a disk of its own.
        for size in (4096,) if "dense" in command else sizes:
            with small_disk(full, size) as (limits, mounted):
                if "dense" in command and not mounted:
                    print(f"no tmpfs may be mounted: {what} has no small disk")
                    continue
                end, said = outcome(command, seconds, env={**os.environ, "XDG_DATA_HOME": str(full)}, **limits)
                left = [str(path) for path in full.rglob("*") if path.is_file() and "MOECL" not in path.name and not is_table(path)]
                if (end == "sentence" and (left or said.count("\n") != 1)) or any(path.endswith(".tmp") for path in left):
                    end = "half file"
                tally.add(f"{what} on {size} bytes", end, f"{said}, left {left}")
    with open("/dev/full", "wb") as stdout:
        for arguments in (run + ["--json"], run, [moecl, "verify", golden, "--platform", "Portable"], bench + ["--json"],
                          [moecl, "devices", "--json"], [moecl, "families"], [moecl, "op", "--list"], [moecl, "env"],
                          [moecl, "cache"], [moecl, "--help"]):
            end, said = outcome(arguments, 120 if arguments[1] == "bench" else SECONDS, stdout=stdout)
            tally.add(f"{' '.join(map(str, arguments[1:]))} to /dev/full", end, said, good=("sentence",))
    for size in (4096, 1 << 19):  # the cache is advice: a warning, and the work is done
        with small_disk(full, size) as (_, mounted):
            if not mounted:
                print("no tmpfs may be mounted: the cache has no small disk, as a limit on files would be PoCL's too")
                break
            end, said = outcome(run, env={**os.environ, "MOECL_CACHE_DIR": str(full / "cl")})
            if end == "done" and ("warning" not in said or list(full.rglob("*.tmp"))):
                end = "half file"
            tally.add(f"the cache on {size} bytes", end, said, good=("done",))


def killed_writers(moecl, preload, golden, runs, tally, work):
    """Whoever comes after a writer that was killed finds whole programs or none."""
    cache, out = work / "cache", work / "out"
    # Programs of helpers are stored one by one as they come, which is what is killed here.
    environment = {**os.environ, "MOECL_CACHE_DIR": str(cache)}
    command = [moecl, "run", golden, "--platform", "Portable", "--tokens", "4", "--output", out]
    counting = {**environment, "LD_PRELOAD": os.path.abspath(preload), "DYING_FOLDER": str(cache)}
    subprocess.run(command, env={**counting, "COUNT_OPERATIONS": str(work / "count")}, check=True, capture_output=True)
    expected, total = out.read_bytes(), int((work / "count").read_text())
    for n in range(1, total + 1, max(1, total // runs) if runs else 1):
        shutil.rmtree(cache)
        out.unlink(missing_ok=True)
        killed, said = outcome(command, env={**counting, "DIE_AT": str(n)})
        if killed != "abort":
            tally.add(f"operation {n}", "not killed", said)
            continue
        for leftover in cache.glob("*.tmp"):
            os.utime(leftover, (time.time() - 7200,) * 2)
        end, said = outcome(command, env=environment)
        right = end == "done" and said == "" and out.read_bytes() == expected
        subprocess.run([moecl, "cache", "prune"], env=environment, check=True, capture_output=True)
        left = list(cache.glob("*.tmp"))
        tally.add(f"after a kill at operation {n}", end if right and not left else "wrong", f"{said}, left {left}",
                  good=("done",))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("moecl")
    parser.add_argument("preload")
    parser.add_argument("golden")
    parser.add_argument("--runs", type=int, help="kills, spread over all operations, and disks of one size; default: every one")
    given = parser.parse_args()
    moecl, golden = os.path.abspath(given.moecl), os.path.abspath(given.golden)
    disks, kills = Tally(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        full_disks(moecl, golden, (100,) if given.runs else (1, 100, 4096), disks, pathlib.Path(folder))
        killed_writers(moecl, given.preload, golden, given.runs, kills, pathlib.Path(folder))
    return disks.close("full disks") + kills.close("kill -9 in the program cache")


if __name__ == "__main__":
    sys.exit(main())
