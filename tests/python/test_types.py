"""The package's annotations hold together, so a user's type checker may trust them."""
import pathlib
import subprocess
import sys

import pytest

import moecl


def test_mypy(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    package = pathlib.Path(moecl.__file__).parent
    done = subprocess.run([sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", tmp_path, "-p", package.name],
                          cwd=package.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
