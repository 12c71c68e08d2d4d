"""Ranks that are processes of Open MPI and of MPICH."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("mpi_ranks.py")
SHARED_CONTEXT, SHARED_MEMORY, MPI_ALONE = 1, 4, 5
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "-n", "2"], "mpich": ["mpirun.mpich", "-n", "2"]}


def said(mpi, way, tmp_path, launcher):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPI4PY_MPIABI": mpi}
    if mpi == "mpich":  # Debian has it under another name than mpi4py looks for
        (tmp_path / "libmpi.so.12").symlink_to(library("mpich"))
        environment["LD_LIBRARY_PATH"] = str(tmp_path)
    done = subprocess.run([*launcher, sys.executable, PROGRAM, way], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    values, text = [], done.stdout.strip()  # mpirun does not keep lines apart
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        values, text = [*values, value], text[end:].strip()
    return sorted(values)


def library(name):
    """Where the loader finds it."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"=> (/.*/lib{name}\.so\.\d+)$", cache, re.MULTILINE).group(1)


@pytest.mark.parametrize("mpi", MPIRUN)
def test_a_communicator_of_mpi4py(mpi, tmp_path):
    everyone = [0, 1, 2]
    assert said(mpi, "own", tmp_path, MPIRUN[mpi]) == [[[0], [everyone], [SHARED_MEMORY]], [[1, 2], [everyone] * 2, [SHARED_CONTEXT, SHARED_MEMORY]]]


@pytest.mark.parametrize("mpi", MPIRUN)
def test_a_process_that_no_mpirun_started(mpi, tmp_path):
    """Python has MPI where no other library sees its names."""
    assert said(mpi, "own", tmp_path, []) == [[[0], [[0]], []]]


@pytest.mark.parametrize("mpi", MPIRUN)
def test_processes_without_mpi4py(mpi, tmp_path):
    assert said(mpi, "world", tmp_path, MPIRUN[mpi]) == [[[rank], [[0, 1]], [MPI_ALONE]] for rank in (0, 1)]
