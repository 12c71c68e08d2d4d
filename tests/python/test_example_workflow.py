"""The example's GitHub Actions file: its test step is run here, in the environment that its steps before it would make."""
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
import yaml  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
ELSEWHERE = {"git", "compilers, libraries and PoCL", "packages"}


def test_workflow(tmp_path):
    job = yaml.safe_load((ROOT / "host/python/examples/github_actions.yml").read_text())["jobs"]["cpu"]
    (tmp_path / "moecl").symlink_to(ROOT)
    (tmp_path / "environment").symlink_to(sys.prefix)
    steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert ELSEWHERE < steps.keys()
    for name, command in steps.items():
        if name in ELSEWHERE:
            continue
        done = subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env={**os.environ, **job["env"], "PYTEST_ADDOPTS": "-p no:cacheprovider"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout
