#!/usr/bin/env python3
"""Adds up what ctest and the test processes wrote; ends in one line "N passed, N failed".

usage: test_report.py BUILD PLATFORM...

BUILD/results holds ctest.xml and one JSON file of GoogleTest for each test source. The run fails, too, when no kernel was
launched on one of the named platforms, and when a kernel did not compile: a test may pass with the next variant. What
failed in a test stands just before the sums, where a log is read first.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

LINES = 12  # of a failed test: a cut log still shows five such tests
SLOWEST = 12
FAILURE = re.compile(r": Failure$|^(FAIL|ERROR): |^E  |^\w*(Error|Exception): |terminate called|Segmentation|Abort|Sanitizer")


def count_cases(path):
    """(passed, failed, kernels launched by platform) of one test process."""
    report = json.loads(path.read_text())
    failed = report["failures"] + report["errors"]
    kernels = {key[len("kernels on "):]: int(value) for key, value in report.items() if key.startswith("kernels on ")}
    return report["tests"] - report["disabled"] - failed, failed, kernels


def what_failed(text):
    """The lines that begin a failure, the lines just behind them, and the last line. Without any: the last lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    told = {at for i, line in enumerate(lines) if FAILURE.search(line) for at in range(i, min(i + 5, len(lines)))}
    chosen = sorted(told)[:LINES - 1] + [len(lines) - 1] if told else range(max(len(lines) - LINES, 0), len(lines))
    return [lines[at] for at in chosen]


def dead_programs(build):
    """Programs whose compiler died, according to the cache of the tests."""
    done = subprocess.run([build / "moecl", "devices", "--json"], stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "XDG_CACHE_HOME": build / "cache", "RUSTICL_ENABLE": "llvmpipe"})
    return [(device["name"], dead) for device in json.loads(done.stdout) for dead in device.get("does_not_build", [])]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    results = build / "results"
    passed = failed = 0
    kernels, slowest = dict.fromkeys(sys.argv[2:], 0), []
    for case in xml.etree.ElementTree.parse(results / "ctest.xml").getroot().iter("testcase"):
        name, ok = case.get("name"), case.get("status") == "run"
        slowest.append((float(case.get("time")), name))
        cases = results / (name.replace("/", ".") + ".json")
        if cases.exists():
            good, bad, launched = count_cases(cases)
            for platform, count in launched.items():
                kernels[platform] = kernels.get(platform, 0) + count
            passed, failed = passed + good, failed + max(bad, 0 if ok else 1)
        else:
            passed, failed = passed + ok, failed + (not ok)
        if not ok:
            print(f"{name} failed:", *what_failed(case.findtext("system-out") or ""), sep="\n  ")
    print("slowest:", ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(slowest, reverse=True)[:SLOWEST]))
    for platform, count in kernels.items():
        print(f"kernels launched on {platform}: {count}")
        if count == 0:
            print("that is none, and so a failure")
            failed += 1
    for device, dead in dead_programs(build):
        print(f"does not build on {device}: {dead['program']} {dead['kernel']}: {dead['why']}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
