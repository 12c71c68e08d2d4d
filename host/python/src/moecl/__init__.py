"""Mixture-of-Experts layers and operators on OpenCL devices.

`moecl.operators` has the operators of an Ascend NPU as functions, `Layer` a layer on one device, `RankGroup` ranks that
are threads of this process, `ParallelLayer` a layer over them, `TokenDispatcher` their exchange around experts of one's
own. `moecl.torch_npu` stands in for an NPU under PyTorch.

Calls return when their results are there, and let other threads of Python run meanwhile. A stream is driven by one
thread at a time. Errors are `moecl.Error`s of the library's kinds, and Python's own of the same meaning.
"""
from moecl import operators
from moecl._bench import bench
from moecl._layers import AgreedStep, ExpertMigration, Layer, ParallelLayer, Prefetch
from moecl._runtime import (
    BuildFailed, Communicator, Context, DeadlineExceeded, Device, DeviceError, Error, InternalError, InvalidArgument,
    InvalidData, IoError, NoDevice, OutOfMemory, RankGroup, Stream, Unsupported, commit, default_stream, devices, version)
from moecl._token_dispatcher import RoutedRows, TokenDispatcher

__version__ = version()
__all__ = [
    "AgreedStep", "BuildFailed", "Communicator", "Context", "DeadlineExceeded", "Device", "DeviceError", "Error",
    "ExpertMigration", "InternalError", "InvalidArgument", "InvalidData", "IoError", "Layer", "NoDevice", "OutOfMemory", "ParallelLayer",
    "Prefetch", "RankGroup", "RoutedRows", "Stream", "TokenDispatcher", "Unsupported", "bench", "commit", "default_stream", "devices", "operators", "version"]
