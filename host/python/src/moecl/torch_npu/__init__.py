"""A stand-in for torch_npu: the MoE operators of an Ascend NPU, with the NPU's numbers, on a machine without one.

`install()` puts it into this process as `torch_npu`, `torch.npu`, `torch.ops.npu`, `torch.ops._C_ascend` and the backend
"hccl" of torch.distributed; `python -m moecl.torch_npu SCRIPT` does so before it runs a program. Tensors are torch's on
the CPU. TORCH_NPU.md says what is exact and what is refused.
"""
from __future__ import annotations

import sys
import types
from typing import Any, Callable

from moecl.torch_npu._names import missing

_installed: list[types.ModuleType] = []


class Operators:
    """`torch.ops.npu` or `torch.ops._C_ascend`."""

    def __init__(self, name: str, functions: dict[str, Any]) -> None:
        self._name, self._functions = name, functions
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(f"torch.ops.{self._name}.{name}", name, self._functions)


def run_ranks(count: int, function: Callable[[str, int], Any]) -> list[Any]:
    """Calls function(group name, rank) in a thread for each rank, and returns the results. For tests of
    moe_distribute_* without processes. The group name is for the parameters group_ep and hcom."""
    install()
    from moecl.torch_npu import _distribute

    return _distribute.run_ranks(count, function)


def install() -> types.ModuleType:
    """Installs the stand-in, unless it is installed already. Returns the module `torch_npu`."""
    if _installed:
        return _installed[0]
    import torch

    from moecl.torch_npu import _custom, _device, _hccl, _operators

    functions = _operators.functions()
    module = types.ModuleType("torch_npu", __doc__)
    module.__path__ = []  # type: ignore[attr-defined]
    module.__version__ = "2.13.0"  # type: ignore[attr-defined]
    npu = _device.module()
    module.__dict__.update(functions, npu=npu, **_operators.types())

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(f"torch_npu.{name}", name, functions)

    module.__getattr__ = __getattr__  # type: ignore[method-assign]
    sys.modules["torch_npu"], sys.modules["torch_npu.npu"], sys.modules["torch.npu"] = module, npu, npu
    torch.npu = npu  # type: ignore[attr-defined]
    setattr(torch.ops, "npu", Operators("npu", functions))
    setattr(torch.ops, "_C_ascend", Operators("_C_ascend", _custom.functions()))
    _device.install()
    _hccl.install()
    _installed.append(module)
    return module
