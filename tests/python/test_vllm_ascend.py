"""vllm-ascend's own token dispatchers, prepare/finalize classes, MLP and router, unmodified, on the stand-in: ranks are
processes, and their result is a plain torch model's (ascend/layer.py)."""
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "ascend"))
import releases  # noqa: E402

LAYER = pathlib.Path(__file__).parent / "ascend" / "layer.py"
PATHS = ("all_gather", "mc2", "all_to_all")
PLAIN = [f"{path}:{form}:{parallel}" for path in PATHS for form in ("bf16", "int8") for parallel in ("dp", "tp")]
INT4 = {"0.16.0rc1": ["all_gather:int4:dp", "all_to_all:int4:tp"],
        "0.23.0": ["all_gather:int4:dp", "all_to_all:int4:tp"] + [f"{path}:int4_fused:dp" for path in PATHS]}
# The older release quantizes rows to MX codes in MC2 alone, and has no fp8 with a scale for each row.
MX = {"0.16.0rc1": ["mc2:mxfp8:dp", "mc2:mxfp8:tp"], "0.23.0": [f"{path}:mxfp8:dp" for path in PATHS] + ["mc2:mxfp8:tp", "all_gather:fp8:dp", "all_to_all:fp8:tp"]}


def run(release, generation, ranks, cases, folder):
    source = releases.fetch(release)
    if source is None:
        pytest.skip(f"vllm-ascend {release}: PyPI cannot be reached")
    started = [subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moecl.torch_npu", LAYER, source, release, generation, str(rank), str(ranks),
         folder / "store", *cases], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(ranks)]
    try:
        for rank, process in enumerate(started):
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, f"rank {rank}:\n{said[-3000:]}"
            assert said.count(f"rank {rank}: ") == len(cases), said
    finally:
        for process in started:
            process.kill()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("release", releases.RELEASES)
def test_a2(release, ranks, tmp_path):
    run(release, "A2", ranks, [*PLAIN, *INT4[release], "all_gather:bf16:dp:on_input", "mc2:bf16:dp:shared"], tmp_path)


@pytest.mark.parametrize("release", releases.RELEASES)
def test_a3(release, tmp_path):
    by_server = ["mc2:bf16:dp:hierarchy", "mc2:int8:dp:hierarchy"] if release == "0.23.0" else []  # the older asks for A2
    run(release, "A3", 2, ["mc2:bf16:dp", "mc2:int8:tp", *by_server], tmp_path)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("release", releases.RELEASES)
def test_a5_mxfp8(release, ranks, tmp_path):
    run(release, "A5", ranks, MX[release], tmp_path)


def test_its_unit_tests():
    """Each ends as ascend/unit_tests.txt says."""
    import unit_tests

    source = releases.fetch("0.23.0")
    if source is None:
        pytest.skip("vllm-ascend 0.23.0: PyPI cannot be reached")
    assert unit_tests.table(unit_tests.run(source)) == (LAYER.parent / "unit_tests.txt").read_text(), \
        "write it anew: python tests/python/ascend/unit_tests.py > unit_tests.txt"
