#!/usr/bin/env python3
"""Runs the bundle on the OpenCL drivers of another Debian suite: doctor, the golden models and the operators' tests.

usage: test_root.py BUILD_DIR SUITE[-PROCESSOR] [quick] [PLATFORM...]

A root of the suite (trixie, sid, ...) with PoCL and Mesa is made by debootstrap in BUILD_DIR/roots, once; bubblewrap runs
the programs in it, on the platforms Portable and rusticl unless some are named. `quick` leaves out most operators and all
that runs on rusticl. Ends in one line "N passed, N failed".

bookworm-arm64 and sid-riscv64 are roots for other processors: moecl is cross-compiled for them and QEMU runs it
(tools/cross_root.py), on PoCL alone. Of the golden models those run that CROSS_GOLDENS names.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
import cross_root  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
SUITE, _, PROCESSOR = sys.argv[2].partition("-")
QUICK = "quick" in sys.argv[3:]
TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
DRIVERS = "pocl-opencl-icd,mesa-opencl-icd,ocl-icd-libopencl1"
QUICK_OPERATORS = {"gating_top_k", "grouped_gemm", "gated_activation", "expert_sort"}
if PROCESSOR:
    QUICK_OPERATORS.add("avx2_gemm")  # which tests Arm's dot products too
PLATFORMS = [name for name in sys.argv[3:] if name != "quick"] or (["Portable"] if QUICK or PROCESSOR else ["Portable", "rusticl"])
ROOT = BUILD / "roots" / sys.argv[2]
WORK = BUILD / "roots" / f"{sys.argv[2]}-work"
# One model of each family, and every scheme. In QEMU, compiling takes ten times as long.
CROSS_GOLDENS = ("deepseek-v3-e16k4-negbias", "deepseek-v3-fp8block-e8k4", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2", "mixtral-e8k2", "qwen3-moe-ct-int8-e8k2",
                 "qwen3-moe-ct-nvfp4-e8k2")
if QUICK:
    CROSS_GOLDENS = ("mixtral-awq-e4k2", "mixtral-e8k2", "qwen3-moe-ct-int8-e8k2")


def make_root():
    if (ROOT / "made").exists():
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    print(f"root: making {ROOT}", flush=True)
    if PROCESSOR:
        cross_root.make(ROOT, SUITE, PROCESSOR, DRIVERS.replace("mesa-opencl-icd,", ""))
        (ROOT / "made").touch()
        return
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "debootstrap", "--variant=minbase", f"--include={DRIVERS}", SUITE, ROOT], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*as_root, "touch", ROOT / "made"], check=True)


def unpack_bundle():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    if PROCESSOR:
        built = BUILD / "roots" / f"{sys.argv[2]}-build"
        cross_root.build(ROOT, PROCESSOR, built, ["moecl_command", "moecl_tests"])
        (WORK / "moecl/bin").mkdir(parents=True)
        for program in (built / "moecl", built / "tests/moecl_tests"):
            shutil.copy(program, WORK / "moecl/bin")
        shutil.copytree(TESTS, WORK / "moecl/tests")
        return
    subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", WORK], check=True, stdout=subprocess.DEVNULL)
    archive, = WORK.glob("moecl-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", WORK], check=True)
    (WORK / archive.name.removesuffix(".tar.gz")).rename(WORK / "moecl")


def run(*command):
    """The ended process. Its output is captured and its errors are shown."""
    inside = ["bwrap", "--ro-bind", ROOT, "/", "--bind", WORK, "/tmp", "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys",
              "--chdir", "/tmp", "--clearenv"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/cache", "XDG_DATA_HOME": "/tmp/data",
                   "RUSTICL_ENABLE": "llvmpipe", "POCL_SIGFPE_HANDLER": "0"}
    emulator = []
    if PROCESSOR:
        binds, emulator = cross_root.emulator(ROOT, PROCESSOR)
        inside += binds
        environment["MOECL_COMPILE"] = "in_process"  # QEMU cannot start the helper by itself
        environment["MOECL_CACHE"] = "off"  # to keep a binary, PoCL compiles everything twice
    for name, value in environment.items():
        inside += ["--setenv", name, value]
    return subprocess.run([*inside, *emulator, *command], stdout=subprocess.PIPE, text=True, check=False)


def counted(what, *command):
    """(passed, failed) of a command that ends in "N passed, N failed". Any other end is a failure."""
    done = run(*command)
    last = done.stdout.rstrip().rsplit("\n", 1)[-1]
    found = re.fullmatch(r"(\d+) passed, (\d+) failed", last)
    passed, failed = (int(found[1]), int(found[2])) if found else (0, 1)
    if done.returncode != 0 or not found:
        failed = max(failed, 1)
        print(done.stdout[-2000:])
    print(f"{what}: {passed} passed, {failed} failed, status {done.returncode}", flush=True)
    return passed, failed


def operator(stem):
    report = WORK / f"{stem}.json"
    done = run("/tmp/moecl/bin/moecl_tests", f"--source=kernels_cl/{stem}_test.cpp", "--gtest_brief=1", f"--gtest_output=json:/tmp/{stem}.json",
               f"--gtest_filter=-{'' if 'rusticl' in PLATFORMS else '*rusticl*'}")
    if report.exists():
        found = json.loads(report.read_text())
        failed = found["failures"] + found.get("errors", 0)
        ran = sum(test["status"] == "RUN" for suite in found["testsuites"] for test in suite["testsuite"])
    else:
        ran = failed = 1
    if done.returncode != 0:
        failed = max(failed, 1)
        print(done.stdout[-2000:])
    print(f"{stem}: {ran - failed} passed, {failed} failed, status {done.returncode}", flush=True)
    return ran - failed, failed


def dead_programs(devices):
    """(0, programs that do not build), from the cache of all runs: a test may pass with the next variant."""
    if devices.returncode != 0:
        return 0, 1
    dead = [(device["name"], one) for device in json.loads(devices.stdout) for one in device.get("does_not_build", [])]
    for name, one in dead:
        print(f"does not build on {name}: {one['program']} {one['kernel']}: {one['why']}", flush=True)
    return 0, len(dead)


def main():
    make_root()
    unpack_bundle()
    moecl = "/tmp/moecl/bin/moecl"
    goldens = [f"/tmp/moecl/tests/data/goldens/{case.name}" for case in sorted((TESTS / "data/goldens").iterdir())
               if not PROCESSOR or case.name in CROSS_GOLDENS]
    parts = []
    for platform in PLATFORMS:
        parts.append(functools.partial(counted, f"doctor on {platform}", moecl, "doctor", "--platform", platform))
        for dtype in ("f32",) if QUICK else ("f32", "bf16"):
            parts.append(functools.partial(counted, f"goldens on {platform} in {dtype}", moecl, "verify", *goldens, "--platform", platform,
                                           "--dtype", dtype))
    stems = sorted(path.name.removesuffix("_test.cpp") for path in (TESTS / "kernels_cl").glob("*_test.cpp"))
    parts += [functools.partial(operator, stem) for stem in stems if not QUICK or stem in QUICK_OPERATORS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # a driver compiles on one core
        results = list(pool.map(lambda part: part(), parts))
    results.append(dead_programs(run(moecl, "devices", "--json")))
    passed, failed = (sum(counts) for counts in zip(*results))
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
