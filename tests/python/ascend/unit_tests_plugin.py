"""A plugin of pytest for vllm-ascend's unit tests: the stand-in instead of their conftest's mocks, stubs instead of vllm.

usage: python -m pytest --noconftest -p unit_tests_plugin TEST..., with this folder on PYTHONPATH
"""
import os
import pathlib
import tempfile
import types

import stubs

import moecl.torch_npu

RELEASE = pathlib.Path(os.environ["VLLM_ASCEND_RELEASE"])


def install():
    moecl.torch_npu.install()
    import torch.distributed as dist

    store = pathlib.Path(tempfile.mkdtemp()) / "store"
    dist.init_process_group("hccl", init_method=f"file://{store}", rank=0, world_size=1)
    alone = stubs.Group([0], dist.group.WORLD, 0)
    groups = {kind: alone for kind in ("ep", "tp", "dp", "pcp", "pp", "dcp")}
    stubs.STUBBED += ("numba", "scipy", "transformers", "vllm_ascend.patch", "zmq", "msgpack")
    stubs.install(RELEASE, RELEASE.name.removesuffix("rc1"), "A2", groups, types.SimpleNamespace(in_profile_run=False))
    import contextlib

    import numba
    import vllm.v1.utils
    import vllm_ascend.utils

    numba.njit = lambda *args, **_: args[0] if args and callable(args[0]) else lambda function: function
    vllm.v1.utils.record_function_or_nullcontext = lambda *_: contextlib.nullcontext()
    vllm_ascend.utils.adapt_patch = vllm_ascend.utils.register_ascend_customop = lambda *_: None


install()
