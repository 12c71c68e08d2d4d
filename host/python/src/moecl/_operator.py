"""Calls an operator of the C interface: fills its struct from arrays, plans, allocates the outputs, and runs it."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from moecl import _arrays
from moecl._binding import ffi, lib
from moecl._runtime import Communicator, Shared, Stream, check, check_cl, default_stream

NONE = -(1 << 63)
# These operands, the weights, may have any strides. Other operands have stride 1 in the last dimension.
ANY_STRIDES = {"weight", "x2"}


class Operator:
    """An operator, given by its fields in the order of the C struct: "i name" (input), "o name" (output) or "p name"
    (parameter, followed by its choices)."""

    def __init__(self, name: str, result: Callable[..., Any] | None, collective: bool, *fields: str) -> None:
        self.name, self.result, self.collective = name, result, collective
        self.fields = [field.split() for field in fields]
        self.kind = ffi.typeof(f"moecl_{name}_args*")
        self.plan = getattr(lib, f"moecl_{name}_plan")
        self.run = getattr(lib, f"moecl_{name}")
        defaults = ffi.new(self.kind)
        defaults.size_bytes = ffi.sizeof(self.kind.item)
        check(getattr(lib, f"moecl_{name}_defaults")(defaults))
        self.defaults = ffi.buffer(defaults)[:]
        kinds = {field: about.type.cname.removeprefix("struct ") for field, about in self.kind.item.fields}
        self.has_lists = any(letter == "o" and kinds[field] == "moecl_tensor_list" for letter, field, *_ in self.fields)
        self.given: list[tuple[str, Callable[..., None]]] = []
        self.outputs: list[tuple[str, bool]] = []
        for letter, field, *choices in self.fields:
            is_list = kinds[field] == "moecl_tensor_list"
            if letter == "o":
                self.outputs.append((field, is_list))
            elif letter == "i":
                self.given.append((field, _set_list if is_list else _set_weight if field in ANY_STRIDES else _set_tensor))
            else:
                self.given.append((field, _choice(choices) if choices else _SETTERS[kinds[field]]))

    def __call__(self, on: Stream | Communicator | None, *values: Any) -> Any:
        if isinstance(on, Communicator):
            stream, handle = on.stream, on._handle
        else:
            stream = on if on is not None else default_stream()
            handle = stream._handle
        if isinstance(on, Communicator) != self.collective:
            raise TypeError(f"{self.name}: on: expected a {'Communicator' if self.collective else 'Stream'}, got {on!r}")
        args = ffi.new(self.kind)
        ffi.memmove(args, self.defaults, len(self.defaults))
        shared = Shared(stream)
        try:
            like = None
            for (name, setter), value in zip(self.given, values):
                if value is not None:
                    setter(shared, args, name, value)
                    if like is None and setter in _TENSORS:
                        like = value[0] if isinstance(value, (list, tuple)) else value
            room = self._room(shared, args) if self.has_lists else None
            call, workspace_bytes = stream._call, stream._bytes
            check(self.plan(handle, args, workspace_bytes))
            results = self._outputs(shared, args, like)
            call.workspace.memory = stream.scratch("workspace", workspace_bytes[0]) if workspace_bytes[0] else ffi.NULL
            fault = call.fault.memory = fault_of(stream)
            check(self.run(handle, args, call, 0, ffi.NULL, ffi.NULL))
            if shared.fetch(on.wait if isinstance(on, Communicator) else None, fault):
                raise_fault(stream, fault)
            del room
        finally:
            shared.release()
        return results[0] if self.result is None else self.result(*results)

    def _room(self, shared: Shared, args: Any) -> list[Any]:
        """Allocates the tensors of outputs that are lists: one for each group, the most that any operator returns."""
        kept = []
        for name, is_list in self.outputs:
            if is_list:
                listed = [getattr(args, field).count for letter, field, *_ in self.fields
                          if letter == "i" and hasattr(getattr(args, field), "count")]
                items = ffi.new("moecl_tensor[]", max([1, *listed]))
                target = getattr(args, name)
                target.items, target.count = items, len(items)
                kept.append(items)
        return kept

    def _outputs(self, shared: Shared, args: Any, like: Any) -> list[Any]:
        results: list[Any] = []
        for name, is_list in self.outputs:
            target = getattr(args, name)
            if is_list:
                results.append([_allocate(shared, target.items[i], like) for i in range(target.count)])
            else:
                results.append(_allocate(shared, target, like) if target.rank else None)
        return results


def _allocate(shared: Shared, tensor: Any, like: Any) -> Any:
    array = _arrays.empty(like, tensor.dtype, tensor.shape[0:tensor.rank])
    shared.result(tensor, array)
    return array


def _set_tensor(shared: Shared, args: Any, name: str, value: Any) -> None:
    shared.tensor(getattr(args, name), value, name)


def _set_weight(shared: Shared, args: Any, name: str, value: Any) -> None:
    shared.tensor(getattr(args, name), value, name, any_strides=True)


def _set_list(shared: Shared, args: Any, name: str, value: Any) -> None:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    items = ffi.new("moecl_tensor[]", len(values))
    for i, item in enumerate(values):
        shared.tensor(items[i], item, f"{name}[{i}]", any_strides=name in ANY_STRIDES)
    target = getattr(args, name)
    target.items, target.count = items, len(values)
    shared.keep.append(items)


_TENSORS = {_set_tensor, _set_weight, _set_list}


def _set_number(shared: Shared, args: Any, name: str, value: Any) -> None:
    setattr(args, name, NONE if value is None else value)


def _set_small(shared: Shared, args: Any, name: str, value: Any) -> None:
    """A bool, or a dtype."""
    setattr(args, name, value if isinstance(value, int) else _arrays.dtype_number(value))


def _set_ints(shared: Shared, args: Any, name: str, value: Sequence[int]) -> None:
    items = ffi.new("int64_t[]", [int(item) for item in value])
    target = getattr(args, name)
    target.items, target.count = items, len(items)
    shared.keep.append(items)


def _set_text(shared: Shared, args: Any, name: str, value: str) -> None:
    text = ffi.new("char[]", value.encode())
    setattr(args, name, text)
    shared.keep.append(text)


_SETTERS: dict[str, Callable[..., None]] = {
    "int64_t": _set_number, "double": _set_number, "int32_t": _set_small, "moecl_int_list": _set_ints,
    "char *": _set_text, "char const *": _set_text}


def _choice(names: Sequence[str]) -> Callable[..., None]:
    numbers = {name: number for number, name in enumerate(names)}
    numbers["" if names[0] == "default" else names[0]] = 0

    def set_choice(shared: Shared, args: Any, name: str, value: str) -> None:
        if value not in numbers:
            raise ValueError(f"{name}: expected one of {', '.join(names)}, got {value!r}")
        setattr(args, name, numbers[value])

    return set_choice


def fault_of(stream: Stream) -> Any:
    """The stream's fault word: four zeros in device memory, which a kernel overwrites if it finds wrong data."""
    memory = stream._scratch.get("fault")
    if memory is None:
        stream.scratch("fault", 256)
        _clear_fault(stream)
        memory = stream._scratch["fault"]
    return memory[0]


def _clear_fault(stream: Stream) -> None:
    memory, status = stream._scratch["fault"][0], ffi.new("int32_t*")
    mapped = lib.clEnqueueMapBuffer(stream._cl, memory, 1, 2, 0, 16, 0, ffi.NULL, ffi.NULL, status)
    check_cl(status[0], "mapping the fault word")
    ffi.memmove(mapped, bytes(16), 16)
    check_cl(lib.clEnqueueUnmapMemObject(stream._cl, memory, mapped, 0, ffi.NULL, ffi.NULL), "unmapping the fault word")


def raise_fault(stream: Stream, memory: Any) -> None:
    array = ffi.new("moecl_device_array*")
    array.memory = memory
    try:
        check(lib.moecl_check_fault(stream._handle, array[0]))
    finally:
        _clear_fault(stream)
