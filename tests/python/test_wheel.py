"""One wheel is for every Python from 3.11 on: README's program runs in a fresh environment of each newer interpreter that is
here."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "host/python/README.md"


def said(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    said(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", folder, ROOT / "host/python")
    (made,) = folder.glob("*.whl")
    assert "-cp311-abi3-" in made.name
    return made


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_readme_runs_with_a_newer_python(wheel, version, tmp_path):
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", "import venv"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said(python, "-m", "venv", tmp_path / "environment")
    installed = subprocess.run([tmp_path / "environment/bin/pip", "install", "--quiet", wheel], capture_output=True, text=True, env=environment)
    if "No matching distribution" in installed.stderr and "numpy" in installed.stderr:
        pytest.skip("PyPI cannot be reached")
    assert installed.returncode == 0, installed.stderr
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    assert said(tmp_path / "environment/bin/python", "-c", program, cwd=tmp_path, env=environment).startswith("(16, 64) ")
