#!/usr/bin/env python3
"""vllm-ascend's own unit tests of MoE and EPLB (0.23.0), with the stand-in where they had mocks or an NPU.

usage: python unit_tests.py > unit_tests.txt       a line a test: what became of it, and what a failed one needs

Its tests of NPU runners (folders a2 and a3_2) are among them. vllm is not there (stubs.py), so tests of what vllm's own
classes do fail. Those of eplb/core/policy are left out: they need numba and scipy.
"""
import os
import pathlib
import re
import subprocess
import sys

import releases

HERE = pathlib.Path(__file__).parent
TESTS = ("ops/test_comm_utils.py", "ops/test_fused_moe.py", "ops/test_moe_comm_method.py", "ops/test_moe_mlp.py",
         "ops/test_moe_runtime_args.py", "ops/test_prepare_finalize.py", "ops/a2/test_token_dispatcher.py",
         "ops/a3_2/test_activation.py", "ops/a3_2/test_select_experts.py", "eplb/test_eplb_updator.py", "eplb/adaptor",
         "eplb/core/test_eplb_device_transfer_loader.py", "eplb/core/a2")
NEEDS = (("ops/a3_2/test_activation.py", "vllm's activations (SiluAndMul, QuickGELU, SwigluOAIAndMul, swiglustep)"),
         ("ops/test_fused_moe.py", "vllm's UnquantizedFusedMoEMethod"), ("eplb/core/a2/test_eplb_utils.py", "vllm's VllmConfig"),
         ("", "vllm"))


def run(release):
    """{test: passed, failed, error or skipped}"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "--noconftest", "-p", "unit_tests_plugin", "-p", "no:cacheprovider",
         "-v", "--no-header", "--tb=no", *(f"tests/ut/{test}" for test in TESTS)], cwd=release, capture_output=True, text=True,
        env={**os.environ, "VLLM_ASCEND_RELEASE": str(release), "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": os.pathsep.join([str(HERE), str(release), os.environ.get("PYTHONPATH", "")])})
    found = re.findall(r"^tests/ut/(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout, re.MULTILINE)
    if not found:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return {test: verdict.lower() for test, verdict in found}


def table(results):
    lines = []
    for test, verdict in results.items():
        needs = next(what for prefix, what in NEEDS if test.startswith(prefix))
        lines.append(f"{verdict:7} {test}" + (f"  needs {needs}" if verdict in ("failed", "error") else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(run(releases.fetch("0.23.0"))), end="")
