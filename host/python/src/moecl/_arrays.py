"""Converts arrays of other libraries to what the C interface takes: an address, a dtype, a shape and strides.

NumPy arrays and torch tensors are read in place. Other objects with `__dlpack__` or a buffer become NumPy views. A
pyopencl array is passed as its cl_mem. Types that NumPy lacks (bfloat16, float8) come from ml_dtypes.
"""
from __future__ import annotations

import sys
from typing import Any, NamedTuple, Sequence

import numpy

Array = Any
"""A NumPy array, a torch tensor of the CPU, a pyopencl array, or what has `__dlpack__` or a buffer."""
Arrays = Any
"""One array, or a sequence of them."""
DType = Any
"""A dtype of NumPy or torch, or its name: "float32", "bfloat16", "int8"."""

# The values of moecl_dtype in the C interface. Operators take 8-bit codes as uint8.
NUMBERS = {
    "float32": 1, "float16": 2, "bfloat16": 3, "int8": 4, "uint8": 5, "bool": 6, "int32": 7, "int64": 8,
    "float8_e4m3fn": 9, "float8_e5m2": 10, "float8_e8m0fnu": 11, "float4_e2m1fn_x2": 5, "uint64": 8, "uint32": 7}
SHORT = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64"}
NAMES = {1: "float32", 2: "float16", 3: "bfloat16", 4: "int8", 5: "uint8", 6: "bool", 7: "int32", 8: "int64"}
CODES = {9, 10, 11}
UINT8 = 5
SIZES = {1: 4, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 4, 8: 8, 9: 1, 10: 1, 11: 1}


class View(NamedTuple):
    """The memory of an array. `keep` is the object that owns this memory."""

    address: int
    dtype: int
    shape: Sequence[int]
    strides: Sequence[int] | None  # in elements; None: contiguous
    elements: int  # extent in memory, from the first element to one past the last
    keep: Any
    cl_mem: int = 0  # handle of a pyopencl array, else 0
    offset_bytes: int = 0

    @property
    def bytes(self) -> int:
        return self.elements * SIZES[self.dtype]


_torch: Any = None
_torch_numbers: dict[Any, int] = {}
_torch_types: dict[int, Any] = {}
_numpy_numbers: dict[Any, int] = {}


def _find_torch() -> Any:
    global _torch
    if _torch is None and "torch" in sys.modules:
        torch = sys.modules["torch"]
        for name, number in NUMBERS.items():
            if hasattr(torch, name):
                _torch_numbers[getattr(torch, name)] = number
        for number, name in NAMES.items():
            _torch_types[number] = getattr(torch, name)
        _torch = torch
    return _torch


def dtype_name(dtype: DType) -> str:
    """The name of a dtype: "bfloat16" for torch.bfloat16, ml_dtypes.bfloat16 or "bf16"."""
    if isinstance(dtype, str):
        name = SHORT.get(dtype, dtype)
    elif type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
    else:
        name = numpy.dtype(dtype).name
    if name not in NUMBERS:
        raise TypeError(f"dtype {dtype!r} is none of {', '.join(NUMBERS)}")
    return name


def dtype_number(dtype: DType) -> int:
    """The moecl_dtype of a dtype; 0 for None."""
    return 0 if dtype is None else NUMBERS[dtype_name(dtype)]


def numpy_dtype(number: int) -> numpy.dtype:
    name = NAMES[number]
    if name == "bfloat16":
        import ml_dtypes

        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(name)


def is_torch(array: Array) -> bool:
    torch = _find_torch()
    return torch is not None and isinstance(array, torch.Tensor)


def view(array: Array, name: str, any_strides: bool = False) -> View:
    """The View of an array. The array is read in place if its last dimension has stride 1, or, with `any_strides`, if
    no stride is negative. Otherwise it is copied."""
    if is_torch(array):
        if array.device.type != "cpu":
            raise TypeError(f"{name}: a tensor on {array.device}; only those of the CPU share their memory")
        number = _torch_numbers.get(array.dtype)
        if number is None:
            raise TypeError(f"{name}: dtype {array.dtype} is none of {', '.join(NUMBERS)}")
        if array.dim() == 0:
            array = array.reshape(1)
        if array.is_contiguous() or not (any_strides or array.stride(-1) == 1):
            array = array.contiguous()
            return View(array.data_ptr(), number, array.shape, None, array.numel(), array)
        strides = array.stride()
        return View(array.data_ptr(), number, array.shape, strides, _span(array.shape, strides), array)
    if not isinstance(array, numpy.ndarray):
        if hasattr(getattr(array, "data", None), "int_ptr"):  # pyopencl.array.Array
            size = array.dtype.itemsize
            return View(0, dtype_number(array.dtype), array.shape, None if array.flags.c_contiguous else
                        [stride // size for stride in array.strides], array.size, array, array.data.int_ptr, array.offset)
        array = numpy.from_dlpack(array) if hasattr(array, "__dlpack__") else numpy.asarray(array)
    number = _numpy_numbers.get(array.dtype)
    if number is None:
        try:
            number = _numpy_numbers[array.dtype] = NUMBERS[dtype_name(array.dtype)]
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
    if array.ndim == 0:
        array = array.reshape(1)
    flags = array.flags
    if not flags.c_contiguous and flags.aligned and array.size:
        strides = [stride // array.itemsize for stride in array.strides]
        if min(strides) >= 0 and (any_strides or strides[-1] == 1):
            return View(array.__array_interface__["data"][0], number, array.shape, strides, _span(array.shape, strides), array)
    if not (flags.c_contiguous and flags.aligned):
        array = numpy.array(array, order="C")
    return View(array.__array_interface__["data"][0], number, array.shape, None, array.size, array)


def empty(like: Array, number: int, shape: Sequence[int]) -> Array:
    """A new uninitialized array: a torch tensor if `like` is one, else a NumPy array."""
    if is_torch(like):
        return _torch.empty(list(shape), dtype=_torch_types[number])
    return numpy.empty(tuple(shape), numpy_dtype(number))


def memory_of(array: Array) -> tuple[int, int]:
    """The address, and the size in bytes, of an array that `empty` made."""
    if isinstance(array, numpy.ndarray):
        return array.__array_interface__["data"][0], array.nbytes
    return array.data_ptr(), array.nbytes


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if all(shape) else 0
