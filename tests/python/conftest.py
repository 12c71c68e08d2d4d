"""Tests of the package as it is installed; programs that kernels become go to the build folder."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ.setdefault("POCL_SIGFPE_HANDLER", "0")
