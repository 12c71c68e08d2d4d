#!/usr/bin/env python3
"""Runs the steps of the examples' GitHub Actions file here, in a folder where moecl is installed already.

usage: run_steps.py WORKFLOW SOURCE FOLDER

SOURCE stands in for the submodule, FOLDER/prefix for the step that builds and installs moecl. The step that installs git
needs root; every other `run` is executed as it stands.
"""
import os
import pathlib
import subprocess
import sys

import yaml

ELSEWHERE = {"git", "moecl"}


def main():
    workflow, source, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    job = yaml.safe_load(workflow.read_text())["jobs"]["pocl"]
    (folder / "moecl").symlink_to(source)
    environment = {**os.environ, **job["env"]}
    steps = [step for step in job["steps"] if "run" in step]
    if not ELSEWHERE < {step["name"] for step in steps}:
        sys.exit(f"{workflow}: of {ELSEWHERE} a step is gone")
    for step in steps:
        if step["name"] not in ELSEWHERE:
            print(f"--- {step['name']}", flush=True)
            subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
