"""Mixture-of-Experts layers and operators on OpenCL devices.

`moecl.operators` has the operators of an Ascend NPU as functions. `Layer` is a layer on one device. `RankGroup` makes
ranks, which are threads of this process or processes; `ParallelLayer` is a layer over them, and `TokenDispatcher` their
exchange around the caller's own experts. `moecl.torch_npu` stands in for an NPU under PyTorch.

A call returns when its results are ready; other Python threads run meanwhile. Use a stream in one thread at a time.
Every error is a `moecl.Error`; where Python has an exception of the same meaning, the error is also that exception.
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
