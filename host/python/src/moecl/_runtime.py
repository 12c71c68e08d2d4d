"""Contexts, streams, groups of ranks and errors; and host memory that calls lend to the device."""
from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, NamedTuple, Sequence

import numpy

from moecl import _arrays
from moecl._binding import ffi, lib

USE_HOST_PTR, READ_ONLY, READ_WRITE = 1 << 3, 1 << 2, 1 << 0
MAP_READ = 1
POINTER = ffi.typeof("void*")
READ_BYTES = 65536  # results up to this size are read; larger ones are mapped
RESULTS_BYTES = 1 << 20  # size of a stream's buffer for results that are read
ALIGNMENT = 256


class Error(Exception):
    """The base of moecl's errors: a refused request, or a failure."""


class InvalidArgument(Error, ValueError):
    """A shape, dtype, option or id is wrong."""


class Unsupported(Error, NotImplementedError):
    """The request is meaningful, but this library or device cannot do it."""


class InvalidData(Error, ValueError):
    """A file is malformed or contradicts another."""


class IoError(Error, OSError):
    """The operating system refused a file operation."""


class NoDevice(Error):
    """No usable OpenCL platform or device."""


class OutOfMemory(Error, MemoryError):
    """The host or a device could not allocate."""


class BuildFailed(Error):
    """An OpenCL program did not compile."""


class DeviceError(Error):
    """An OpenCL call failed."""


class DeadlineExceeded(Error, TimeoutError):
    """A wait ran out of time."""


class InternalError(Error):
    """A bug of moecl."""


_KINDS = [Error, InvalidArgument, Unsupported, InvalidData, IoError, NoDevice, OutOfMemory, BuildFailed, DeviceError,
          DeadlineExceeded, InternalError]


def check(status: int) -> None:
    """Raises the error of a status of the C interface, unless the status is 0."""
    if status:
        kind = _KINDS[status] if status < len(_KINDS) else Error
        raise kind(ffi.string(lib.moecl_last_error_message()).decode(errors="replace"))


def check_cl(status: int, what: str) -> None:
    if status:
        kind = OutOfMemory if status in (-4, -5, -6) else DeviceError
        raise kind(f"{what}: OpenCL error {status}")


def version() -> str:
    """The version of the library: "0.1.0"."""
    return ffi.string(lib.moecl_version()).decode()


def commit() -> str:
    """The commit that the library was built from."""
    return ffi.string(lib.moecl_commit()).decode()


def struct(kind: str) -> Any:
    made = ffi.new(f"{kind}*")
    made.size_bytes = ffi.sizeof(kind)
    return made


def plain(described: Any) -> dict[str, Any]:
    """The numbers and texts of a describing struct of the C interface, by field name."""
    fields: dict[str, Any] = {}
    for name, field in ffi.typeof(described).item.fields:
        value = getattr(described, name)
        if name == "size_bytes" or name.startswith("reserved") or field.type.kind == "pointer":
            continue
        fields[name] = ffi.string(value).decode(errors="replace") if field.type.kind == "array" else value
    return fields


class Device(NamedTuple):
    """One of `devices()`; `refused` says why moecl cannot use it."""

    number: int
    platform_name: str
    name: str
    driver_version: str
    refused: str
    global_mem_bytes: int
    max_alloc_bytes: int
    compute_units: int


def devices() -> list[Device]:
    """Devices of all OpenCL platforms, usable or not."""
    count = ffi.new("int32_t*")
    check(lib.moecl_device_count(count))
    found = []
    for index in range(count[0]):
        info = struct("moecl_device_info")
        check(lib.moecl_device_describe(index, info))
        fields = plain(info)
        found.append(Device(index, *(fields[name] for name in Device._fields[1:])))
    return found


@ffi.def_extern()
def moecl_py_log(user: Any, level: int, message: Any) -> None:
    ffi.from_handle(user)(level, ffi.string(message).decode(errors="replace"))


class Handle:
    """Owns an object of the C interface, which is destroyed with this Python object."""

    def __init__(self, handle: Any, destroy: Callable[[Any], int], *keeps: Any) -> None:
        self._handle = handle
        self._keeps = keeps
        self._finalizer = weakref.finalize(self, _destroy, destroy, handle, keeps)

    def close(self) -> None:
        """Destroys the object now. It must not be used afterwards."""
        self._finalizer()


def _destroy(destroy: Callable[[Any], int], handle: Any, keeps: Any) -> None:
    destroy(handle)


class Context(Handle):
    """A device with its compiled programs.

    Args:
        device: number of a device of `devices()`; None: the first usable device whose platform and device names contain
            `platform` and `name`
        log: called with (level, message) for each line of the log
        options: fields of moecl_context_options by name: trace=1, log_level, disk_cache, cache_dir, compile, ...
    """

    def __init__(self, device: int | None = None, *, platform: str = "", name: str = "",
                 log: Callable[[int, str], None] | None = None, **options: Any) -> None:
        given = struct("moecl_context_options")
        keep: list[Any] = []
        fill(given[0], options, keep)
        if log is not None:
            handle = ffi.new_handle(log)
            keep.append(handle)
            given.log, given.log_user = lib.moecl_py_log, handle
        out = ffi.new("moecl_context**")
        if device is not None:
            check(lib.moecl_context_create(device, given, out))
        else:
            check(lib.moecl_context_create_matching(platform.encode(), name.encode(), given, out))
        super().__init__(out[0], lib.moecl_context_destroy, keep)
        self._native_context()

    def _native_context(self) -> None:
        native = ffi.new("struct _cl_context**")
        check(lib.moecl_context_native(self._handle, native))
        self._cl = native[0]

    @classmethod
    def wrap(cls, int_ptr: int) -> Context:
        """Wraps another library's cl_context, such as pyopencl's: `Context.wrap(context.int_ptr)`."""
        out = ffi.new("moecl_context**")
        check(lib.moecl_context_wrap(ffi.cast("struct _cl_context*", int_ptr), ffi.NULL, out))
        made = cls.__new__(cls)
        Handle.__init__(made, out[0], lib.moecl_context_destroy)
        made._native_context()
        return made

    def stream(self, device_index: int = 0) -> Stream:
        """A stream on one of the context's devices."""
        out = ffi.new("moecl_stream**")
        check(lib.moecl_stream_create(self._handle, device_index, out))
        return Stream(out[0], self)

    def wrap_stream(self, int_ptr: int) -> Stream:
        """Wraps another library's in-order cl_command_queue."""
        out = ffi.new("moecl_stream**")
        check(lib.moecl_stream_wrap(self._handle, ffi.cast("struct _cl_command_queue*", int_ptr), out))
        return Stream(out[0], self)

    def describe(self) -> dict[str, Any]:
        """Counts so far: kernels_launched, programs_built, ..."""
        info = struct("moecl_context_info")
        check(lib.moecl_context_describe(self._handle, info))
        return plain(info)

    def save_programs(self) -> None:
        """Writes compiled programs to the disk cache."""
        check(lib.moecl_context_save_programs(self._handle))

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the recorded trace, for ui.perfetto.dev. The context must be made with trace=1."""
        check(lib.moecl_trace_write(self._handle, os.fsencode(path)))


class Stream(Handle):
    """An in-order queue. `context.stream()` makes it."""

    def __init__(self, handle: Any, context: Context) -> None:
        native = ffi.new("struct _cl_command_queue**")
        check(lib.moecl_stream_native(handle, native))
        super().__init__(handle, lib.moecl_stream_destroy, context)
        self.context = context
        self._cl = native[0]
        # Memory that calls write into, one call at a time: a status, the fault word, a plan's workspace bytes.
        self._status, self._words, self._bytes = ffi.new("int32_t*"), ffi.new("int32_t[4]"), ffi.new("uint64_t*")
        self._call = struct("moecl_call")
        self._scratch: dict[str, tuple[Any, int]] = {}
        self._lent: list[Any] = []

    def finish(self) -> None:
        """Waits until all that was enqueued has completed."""
        check(lib.moecl_stream_finish(self._handle))

    def scratch(self, kind: str, bytes_: int) -> Any:
        """Device memory that this stream's calls share, one call at a time."""
        memory, size = self._scratch.get(kind, (None, -1))
        if size < bytes_:
            status = ffi.new("int32_t*")
            memory = lib.clCreateBuffer(self.context._cl, READ_WRITE, max(bytes_, 256), ffi.NULL, status)
            check_cl(status[0], f"{kind} of {bytes_} bytes")
            memory = ffi.gc(memory, lib.clReleaseMemObject)
            self._scratch[kind] = (memory, bytes_)
        return memory


_default: dict[int, Stream] = {}
_contexts: list[Context] = []
_lock = threading.Lock()


def default_context() -> Context:
    """The context that all default streams share, on the first usable device."""
    with _lock:
        if not _contexts:
            _contexts.append(Context())
        return _contexts[0]


_local = threading.local()


def default_stream() -> Stream:
    """This thread's default stream, of the default context, on the first usable device."""
    stream = getattr(_local, "stream", None)
    if stream is None:
        stream = _local.stream = default_context().stream()
    return stream


class Shared:
    """Host memory lent to the device for one call. A CPU device works on it in place; for other devices the driver
    copies it. Call `fetch` before the results are read, and `release` at the end."""

    __slots__ = ("stream", "memories", "written", "keep", "used_bytes")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.memories: list[Any] = []
        self.written: list[tuple[Any, int, int, Any]] = []  # memory, offset and bytes of a result, and its host memory
        self.keep: list[Any] = []
        self.used_bytes = 0  # of the stream's buffer for results

    def lend(self, address: int, bytes_: int, written: bool) -> Any:
        status, host = self.stream._status, ffi.cast(POINTER, address)
        memory = lib.clCreateBuffer(self.stream.context._cl, USE_HOST_PTR | (READ_WRITE if written else READ_ONLY), bytes_,
                                    host, status)
        if status[0]:
            check_cl(status[0], f"{bytes_} bytes of the host")
        self.memories.append(memory)
        if written:
            self.written.append((memory, 0, bytes_, host))
        return memory

    def fetch(self, wait: Callable[[], None] | None = None, fault: Any = None) -> bool:
        """Waits once, until the results and the fault word are in host memory. Returns whether there is a fault."""
        queue, status, mapped = self.stream._cl, self.stream._status, []
        for memory, offset, bytes_, host in self.written:
            if bytes_ <= READ_BYTES:  # one command instead of two
                check_cl(lib.clEnqueueReadBuffer(queue, memory, 0, offset, bytes_, host, 0, ffi.NULL, ffi.NULL),
                         "reading a result")
                continue
            mapped.append((memory, lib.clEnqueueMapBuffer(queue, memory, 0, MAP_READ, 0, bytes_, 0, ffi.NULL, ffi.NULL, status)))
            check_cl(status[0], "mapping a result")
        words = None
        if fault is not None:
            words = self.stream._words  # without `wait`, the read into it blocks until all commands are done
            check_cl(lib.clEnqueueReadBuffer(queue, fault, wait is None, 0, 16, words, 0, ffi.NULL, ffi.NULL),
                     "reading the fault word")
        if wait is not None:
            wait()
        elif words is None:
            self.stream.finish()
        for memory, address in mapped:
            check_cl(lib.clEnqueueUnmapMemObject(queue, memory, address, 0, ffi.NULL, ffi.NULL), "unmapping a result")
        self.stream._lent = self.keep  # kept: their unmapping completes by the next call's wait
        return words is not None and bool(words[0] or words[1] or words[2] or words[3])

    def release(self) -> None:
        for memory in self.memories:
            lib.clReleaseMemObject(memory)

    def tensor(self, to: Any, array: Any, name: str, any_strides: bool = False, written: bool = False) -> None:
        """Fills a moecl_tensor."""
        view = _arrays.view(array, name, any_strides)
        shape, dtype = view.shape, view.dtype
        rank = len(shape)
        if rank > 4:
            raise InvalidArgument(f"{name}: {rank} dimensions; a tensor has at most 4")
        to.dtype = _arrays.UINT8 if dtype in _arrays.CODES else dtype
        to.rank = rank
        to.shape[0:rank] = shape
        to.stride[0:rank] = view.strides if view.strides is not None and view.elements else (0,) * rank
        self._memory(to, view, written)

    def result(self, to: Any, array: Any) -> None:
        """Gives a moecl_tensor, whose shape is already set, the memory of a new array. For a small array it is a part
        of the stream's buffer for results, which costs a copy instead of a buffer."""
        address, bytes_ = _arrays.memory_of(array)
        self.keep.append(array)
        offset, end = self.used_bytes, self.used_bytes + bytes_
        if bytes_ > READ_BYTES or end > RESULTS_BYTES:
            to.memory = self.lend(address, bytes_, True)
        elif bytes_:
            memory = self.stream.scratch("results", RESULTS_BYTES)
            to.memory, to.offset_bytes = memory, offset
            self.written.append((memory, offset, bytes_, ffi.cast(POINTER, address)))
            self.used_bytes = (end + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

    def array(self, to: Any, array: Any, name: str, written: bool = False) -> _arrays.View:
        """Fills a moecl_device_array with a contiguous array."""
        view = contiguous(array, name)
        self._memory(to, view, written)
        return view

    def _memory(self, to: Any, view: _arrays.View, written: bool) -> None:
        if view.cl_mem:
            to.memory, to.offset_bytes = ffi.cast("cl_mem", view.cl_mem), view.offset_bytes
        elif view.elements:
            to.memory = self.lend(view.address, view.bytes, written)
        self.keep.append(view.keep)


def in_place(array: Any, name: str) -> _arrays.View:
    """The View of an array that is written in place. Refuses an array that would have to be copied."""
    view = _arrays.view(array, name, any_strides=True)
    if view.elements and (view.strides is not None or isinstance(array, numpy.ndarray) and not array.flags.carray):
        got = f"strides {tuple(view.strides)}" if view.strides is not None else "one that has to be copied"
        raise InvalidArgument(f"{name}: expected a contiguous array that can be written, got {got}")
    return view


def contiguous(array: Any, name: str) -> _arrays.View:
    view = _arrays.view(array, name)
    if view.strides is not None and view.elements:
        raise InvalidArgument(f"{name}: expected a contiguous array, got strides {tuple(view.strides)}")
    return view


def fill(to: Any, values: dict[str, Any], keep: list[Any]) -> None:
    """Sets fields of a struct of the C interface by name. Values are numbers and lists of them, texts, dtypes or their
    names, host arrays, and dicts for structs."""
    kinds = {name: field.type for name, field in ffi.typeof(to).fields}
    for name, value in values.items():
        kind = kinds.get(name)
        if kind is None or name == "size_bytes":
            raise TypeError(f"no field '{name}'; there are {', '.join(sorted(kinds.keys() - {'size_bytes', 'reserved'}))}")
        if value is None:
            continue
        if kind.cname == "struct moecl_host_array":
            view = contiguous(value, name)
            target = getattr(to, name)
            target.data, target.dtype = ffi.cast("void*", view.address), view.dtype
            keep.append(view.keep)
        elif kind.kind == "struct":
            fill(getattr(to, name), value, keep)
        elif kind.cname == "char *" or kind.cname == "char const *":
            text = ffi.new("char[]", os.fsencode(value))
            keep.append(text)
            setattr(to, name, text)
        elif kind.kind == "pointer":
            numbers = ffi.new(f"{kind.item.cname.replace('const', '').strip()}[]", list(value))
            keep.append(numbers)
            setattr(to, name, numbers)
        elif "dtype" in name and not isinstance(value, int):
            setattr(to, name, _arrays.dtype_number(value))
        else:
            setattr(to, name, value)


def _streams_of(ranks: int | Sequence[Stream]) -> list[Stream]:
    return [default_context().stream() for _ in range(ranks)] if isinstance(ranks, int) else list(ranks)


def _group_options(options: dict[str, Any]) -> Any:
    given = struct("moecl_rank_group_options")
    fill(given[0], options, [])
    return given


class RankGroup(Handle):
    """Ranks that exchange device memory. The constructor's ranks are threads of this process; `join` and `from_mpi`
    make groups of several processes. `streams` has the stream of each rank of this process.

    Args:
        ranks: the number of ranks, on one device; or a stream for each rank
        options: fields of moecl_rank_group_options by name: deadline_ms, transport
    """

    def __init__(self, ranks: int | Sequence[Stream], **options: Any) -> None:
        given = _group_options(options)
        self._make(_streams_of(ranks), lambda streams, out: lib.moecl_rank_group_create(streams, len(streams), given, out))

    def _make(self, streams: list[Stream], make: Callable[[list[Any], Any], int]) -> None:
        """Makes the group. `streams` has a stream for each rank of this process, in order of rank."""
        out = ffi.new("moecl_rank_group**")
        check(make([stream._handle for stream in streams], out))
        super().__init__(out[0], lib.moecl_rank_group_destroy, streams)
        self.streams = dict(zip(self._ranks(lib.moecl_rank_group_local), streams, strict=True))

    def _ranks(self, which: Callable[[Any, Any, Any], int]) -> list[int]:
        count = ffi.new("int32_t*")
        check(which(self._handle, count, ffi.NULL))
        ranks = ffi.new("int32_t[]", count[0])
        check(which(self._handle, count, ranks))
        return list(ranks)

    @classmethod
    def join(cls, name: str, rank: int | Sequence[int], size: int, stream: Stream | Sequence[Stream] | None = None,
             **options: Any) -> RankGroup:
        """Joins the group of this name. Its `size` ranks belong to processes of this machine; each process calls this,
        and waits for the others.

        rank: the rank of this process; or several ranks, which are threads of this process
        stream: the stream of that rank; or a stream for each rank
        """
        ranks = [rank] if isinstance(rank, int) else list(rank)
        if stream is None:
            streams = _streams_of(len(ranks))
        else:
            streams = [stream] if isinstance(stream, Stream) else list(stream)
        if len(streams) != len(ranks):
            raise ValueError(f"{len(streams)} streams for {len(ranks)} ranks")
        pairs, given = sorted(zip(ranks, streams), key=lambda pair: pair[0]), _group_options(options)
        group = cls.__new__(cls)
        group._make([stream for _, stream in pairs], lambda streams, out: lib.moecl_rank_group_join_ranks(
            name.encode(), [rank for rank, _ in pairs], streams, len(pairs), size, given, out))
        return group

    @classmethod
    def from_mpi(cls, comm: Any = None, ranks: int | Sequence[Stream] = 1, **options: Any) -> RankGroup:
        """The group of the processes of an MPI communicator, in its order of ranks. All of these processes call this.

        comm: a communicator of mpi4py, which is duplicated; None: MPI_COMM_WORLD, and this call initialises MPI if
            needed
        ranks: the number of ranks of this process, which are its threads; or a stream for each rank
        """
        address = 0
        if comm is not None:
            from mpi4py import MPI

            address = MPI._addressof(comm)
        given, group = _group_options(options), cls.__new__(cls)
        group._make(_streams_of(ranks), lambda streams, out: lib.moecl_rank_group_from_mpi_ranks(
            ffi.cast("void*", address), streams, len(streams), given, out))
        return group

    def members(self) -> list[int]:
        """The rank that each rank had in the group that was joined. It differs after a shrink."""
        return self._ranks(lib.moecl_rank_group_members)

    def shrink(self) -> RankGroup:
        """A group of the remaining processes of this group, which has ended. Ranks are renumbered, in the old order."""
        return self._regrouped(lib.moecl_rank_group_shrink)

    def rejoin(self) -> RankGroup:
        """As `shrink`, with every rank that had joined: lost ranks have been started again and join meanwhile."""
        return self._regrouped(lib.moecl_rank_group_rejoin)

    def _regrouped(self, regroup: Callable[[Any, Any], int]) -> RankGroup:
        group = RankGroup.__new__(RankGroup)
        group._make(list(self.streams.values()), lambda streams, out: regroup(self._handle, out))
        return group

    def communicator(self, rank: int) -> Communicator:
        """The communicator that a rank uses in its own thread."""
        out = ffi.new("moecl_communicator**")
        check(lib.moecl_rank_group_communicator(self._handle, rank, out))
        return Communicator(out[0], self.streams[rank])

    def transport(self, sender: int, receiver: int) -> dict[str, Any]:
        """How one rank receives from another, and why."""
        info = struct("moecl_transport_info")
        check(lib.moecl_rank_group_transport(self._handle, sender, receiver, info))
        return plain(info)

    def abort(self, cause: str) -> None:
        """Ends the group for every rank."""
        check(lib.moecl_rank_group_abort(self._handle, cause.encode()))

    @property
    def failure(self) -> str:
        """Why the group ended; "" while it is whole."""
        text = ffi.new("char[4096]")
        check(lib.moecl_rank_group_failure(self._handle, text, 4096))
        return ffi.string(text).decode(errors="replace")

    def run(self, function: Callable[[Communicator], Any]) -> list[Any]:
        """Calls function(communicator) in a thread for each rank of this process. Returns the results in order of rank.
        A rank that raises ends the group for the other ranks, and its error is raised here."""
        causes: list[BaseException] = []

        def rank(number: int) -> Any:
            try:
                return function(self.communicator(number))
            except BaseException as error:
                causes.append(error)
                self.abort(f"rank {number}: {error}")
                raise

        with ThreadPoolExecutor(len(self.streams)) as pool:
            futures = [pool.submit(rank, number) for number in self.streams]
        if causes:
            raise causes[0]
        return [future.result() for future in futures]


class Communicator(Handle):
    """One rank's end of the exchanges. `RankGroup.run` and `RankGroup.communicator` make it. All ranks call the same
    functions in the same order, each in its own thread."""

    def __init__(self, handle: Any, stream: Stream) -> None:
        super().__init__(handle, lib.moecl_communicator_destroy, stream)
        self.stream = stream
        info = self.describe()
        self.rank: int = info["rank"]
        self.size: int = info["size"]

    def describe(self) -> dict[str, Any]:
        """rank, size, bytes_received, meetings."""
        info = struct("moecl_communicator_info")
        check(lib.moecl_communicator_describe(self._handle, info))
        return plain(info)

    def part(self, members: Sequence[int]) -> Communicator:
        """The communicator of some members. This rank is one of them."""
        out = ffi.new("moecl_communicator**")
        check(lib.moecl_communicator_part(self._handle, list(members), len(members), out))
        return Communicator(out[0], self.stream)

    def wait(self) -> None:
        """Waits until the rank's stream has completed its commands, but no longer than the group's deadline."""
        check(lib.moecl_communicator_wait(self._handle))

    def barrier(self) -> None:
        """No rank's stream continues before every rank has called this."""
        check(lib.moecl_barrier(self._handle))

    def _call(self, function: Callable[..., int], arrays: list[tuple[Any, str, bool]], *arguments: Any) -> list[Any]:
        shared = Shared(self.stream)
        try:
            passed = []
            views = []
            for array, name, written in arrays:
                item = ffi.new("moecl_device_array*")
                views.append(shared.array(item, array, name, written))
                passed.append(item[0])
            check(function(self._handle, *passed, *(argument(views) if callable(argument) else argument for argument in arguments)))
            shared.fetch(self.wait)
            return views
        finally:
            shared.release()

    def all_gather(self, send: Any, sizes: Sequence[int] | None = None) -> Any:
        """The ranks' arrays one after the other, in order of rank. `sizes`: rows of each rank, if they differ."""
        view = _arrays.view(send, "send")
        sizes = [view.shape[0]] * self.size if sizes is None else list(sizes)
        row = _arrays.SIZES[view.dtype]
        for size in view.shape[1:]:
            row *= size
        out = _arrays.empty(send, view.dtype, [sum(sizes), *view.shape[1:]])
        self._call(lib.moecl_all_gather, [(send, "send", False), (out, "recv", True)], [size * row for size in sizes])
        return out

    def broadcast(self, data: Any, root: int = 0) -> Any:
        """Copies the root's array to every rank's array, in place. data: contiguous."""
        view = in_place(data, "data")
        self._call(lib.moecl_broadcast, [(data, "data", True)], view.bytes, root)
        return data

    def all_reduce(self, data: Any) -> Any:
        """Sums over the ranks, in place. data: contiguous, float32, float16 or bfloat16."""
        view = in_place(data, "data")
        self._call(lib.moecl_all_reduce, [(data, "data", True)], view.dtype, view.elements, 1)
        return data

    def reduce_scatter(self, data: Any, sizes: Sequence[int] | None = None) -> Any:
        """This rank's rows of the sum over the ranks. `sizes`: rows of each rank, if they differ."""
        view = _arrays.view(data, "data")
        if sizes is None:
            if view.shape[0] % self.size:
                raise InvalidArgument(f"data: {view.shape[0]} rows do not divide among {self.size} ranks")
            sizes = [view.shape[0] // self.size] * self.size
        width = 1
        for size in view.shape[1:]:
            width *= size
        out = _arrays.empty(data, view.dtype, [sizes[self.rank], *view.shape[1:]])
        self._call(lib.moecl_reduce_scatter, [(data, "data", False), (out, "out", True)], view.dtype, width, list(sizes))
        return out

    def all_to_all(self, send: Any, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Any:
        """Sends send_sizes[r] rows to each rank r. Returns the received rows in order of rank, recv_sizes[r] from r."""
        view = _arrays.view(send, "send")
        row = _arrays.SIZES[view.dtype]
        for size in view.shape[1:]:
            row *= size
        if sum(send_sizes) != view.shape[0]:
            raise InvalidArgument(f"send_sizes: {list(send_sizes)} add up to another number than {view.shape[0]} rows")
        out = _arrays.empty(send, view.dtype, [sum(recv_sizes), *view.shape[1:]])

        def starts(sizes: Sequence[int]) -> list[int]:
            return [sum(sizes[:rank]) * row for rank in range(self.size)]

        shared = Shared(self.stream)
        try:
            to, back = ffi.new("moecl_device_array*"), ffi.new("moecl_device_array*")
            shared.array(to, send, "send")
            shared.array(back, out, "recv", True)
            check(lib.moecl_all_to_all_v(self._handle, to[0], starts(send_sizes), [size * row for size in send_sizes],
                                         back[0], starts(recv_sizes), [size * row for size in recv_sizes]))
            shared.fetch(self.wait)
        finally:
            shared.release()
        return out
