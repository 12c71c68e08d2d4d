"""torch.npu, and devices named npu. Both are the CPU, where work has completed when a call returns."""
from __future__ import annotations

import contextlib
import functools
import os
import time
import types
from typing import Any, Callable

import torch
import torch.utils._device

from moecl.torch_npu._names import missing


class Event:
    """An event that completes when it is recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        return (end._time - self._time) * 1e3


class Stream:
    """A stream that is in order with all other streams."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cpu")
        self.npu_stream = 0

    def wait_stream(self, stream: Stream) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


_stream = Stream()


@contextlib.contextmanager
def stream(of: Stream | None) -> Any:
    yield of


def _memory() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _seed(seed: int) -> None:
    """Seeds the CPU's generator. torch.manual_seed, which calls this, has seeded it already."""
    torch.default_generator.manual_seed(seed)


def module() -> types.ModuleType:
    npu = types.ModuleType("torch.npu", __doc__)
    properties = types.SimpleNamespace(name="Ascend910B1", total_memory=_memory()[1], cube_core_num=24, vector_core_num=48,
                                       L2_cache_size=192 << 20)
    npu.__dict__.update(
        Stream=Stream, Event=Event, stream=stream, current_stream=lambda device=None: _stream,
        default_stream=lambda device=None: _stream, set_stream=_nothing, synchronize=_nothing,
        current_device=lambda: 0, device_count=lambda: 1, is_available=lambda: True, is_initialized=lambda: True,
        init=_nothing, set_device=_nothing, empty_cache=_nothing, manual_seed=_seed, manual_seed_all=_seed,
        get_rng_state=lambda device=None: torch.get_rng_state(), get_soc_version=lambda: 220, get_device_name=lambda device=None: properties.name,
        get_device_properties=lambda device=None: properties, mem_get_info=lambda device=None: _memory(),
        memory_allocated=lambda device=None: 0, max_memory_allocated=lambda device=None: 0,
        memory_reserved=lambda device=None: 0, max_memory_reserved=lambda device=None: 0,
        reset_peak_memory_stats=_nothing, is_current_stream_capturing=lambda: False,
        device=lambda index: contextlib.nullcontext(), is_bf16_supported=lambda: True, _is_in_bad_fork=lambda: False)

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(f"torch.npu.{name}", name, npu.__dict__)

    npu.__getattr__ = __getattr__  # type: ignore[method-assign]
    return npu


def on_cpu(device: Any) -> Any:
    """The CPU for a device named npu, or for a device number; other values unchanged."""
    if isinstance(device, bool):
        return device
    named = isinstance(device, str) and device.split(":")[0] == "npu"
    typed = isinstance(device, torch.device) and device.type == "npu"
    return torch.device("cpu") if isinstance(device, int) or named or typed else device


def _takes_npu(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        return function(*args, **kwargs)

    return called


def _to(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        return function(self, *[on_cpu(args[0]), *args[1:]] if args else args, **kwargs)

    return called


def _histc(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def histc(input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0, **kwargs: Any) -> torch.Tensor:
        """torch.histc, also for whole numbers, which torch lacks on a CPU and supports on an NPU."""
        if input.is_floating_point():
            return function(input, bins, min, max, **kwargs)
        return function(input.double(), bins, min, max, **kwargs).to(input.dtype)

    return histc


def install() -> None:
    torch.utils.rename_privateuse1_backend("npu")
    # The device npu is only a name. This answers what torch would ask its C++ part.
    torch._C._get_accelerator = lambda check=None: torch.device("cpu")
    for function in torch.utils._device._device_constructors():
        name = function.__name__
        if getattr(torch, name, None) is function:
            setattr(torch, name, _takes_npu(function))
    for name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
        setattr(torch.Tensor, name, _takes_npu(getattr(torch.Tensor, name)))
    torch.Tensor.to = _to(torch.Tensor.to)  # type: ignore[method-assign]
    torch.nn.Module.to = _to(torch.nn.Module.to)  # type: ignore[method-assign]
    torch.Tensor.npu = lambda self, *_, **__: self  # type: ignore[attr-defined]
    torch.nn.Module.npu = lambda self, *_, **__: self  # type: ignore[attr-defined]
    torch.histc = _histc(torch.histc)
