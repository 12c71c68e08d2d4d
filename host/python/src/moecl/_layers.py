"""MoE layers: `Layer` on one device, `ParallelLayer` over ranks."""
from __future__ import annotations

import os
import weakref
from typing import Any, Sequence

from moecl import _arrays
from moecl._binding import ffi, lib
from moecl._runtime import (Communicator, Handle, InvalidArgument, Shared, Stream, check, check_cl, default_stream, fill, plain,
                            struct)

INPUTS = ("x", "ids", "weights", "given_logits", "expert_input", "expert_input_scale", "finished", "token_ids")
CHOICES = ("x", "ids", "weights", "given_logits", "finished", "token_ids")  # the choice of experts depends on these
OUTPUTS = ("out", "routed_out", "shared_out", "router_logits", "topk_ids", "topk_weights", "expert_num_tokens", "expert_rows")


def _description(fields: dict[str, Any], keep: list[Any]) -> Any:
    desc = struct("moecl_layer_desc")
    fill(desc[0], fields, keep)
    return desc


def _fill_inputs(args: Any, shared: Shared, info: dict[str, Any], given: dict[str, Any], known: Sequence[str]) -> Any:
    """Fills `args` with the given arrays, and with `tokens`. Returns the first array."""
    like, tokens = None, None
    for name, array in given.items():
        if array is None:
            continue
        if name not in known:
            raise TypeError(f"no input '{name}'; there are {', '.join(known)}")
        view = shared.array(getattr(args, name), array, name)
        like = array if like is None else like
        if name in ("x", "ids", "expert_input"):
            tokens = view.shape[0]
        if name == "ids":
            args.ids_dtype = view.dtype
        elif name == "given_logits":
            args.logits_dtype = view.dtype
        elif name in ("expert_input", "token_ids"):
            setattr(args, f"{name}_dtype", view.dtype)
        if name == "x" and view.dtype != info["dtype"]:
            raise InvalidArgument(f"x: expected {_arrays.NAMES[info['dtype']]}, got {_arrays.dtype_name(array.dtype)}")
    if tokens is None:
        raise InvalidArgument("expected " + ("x, ids or expert_input" if "expert_input" in known else "x or ids"))
    args.tokens = tokens
    return like


class Prefetch:
    """Experts that are being copied to device memory. The next pass of their layer waits for them; the caller need not.
    The input arrays must not change until that pass, or `wait`, has returned."""

    def __init__(self, done: Any, shared: Shared) -> None:
        self._finalizer = weakref.finalize(self, _ended, done, shared)

    def wait(self) -> None:
        """Waits until the experts are in device memory."""
        check_cl(self._finalizer() or 0, "waiting for a prefetch")


def _ended(done: Any, shared: Shared) -> int:
    status = lib.clWaitForEvents(1, done)
    lib.clReleaseEvent(done[0])
    shared.release()
    return status


def _prefetch(info: dict[str, Any], stream: Stream, run: Any, given: dict[str, Any]) -> Prefetch:
    args, shared, done = struct("moecl_forward_args"), Shared(stream), ffi.new("struct _cl_event**")
    try:
        _fill_inputs(args, shared, info, given, CHOICES)
        run(args, done)
    except BaseException:
        shared.release()
        raise
    return Prefetch(done, shared)


def _destroy_after(ahead: list[Prefetch], destroy: Any) -> Any:
    """Returns a `destroy` that destroys a layer after its prefetches have ended."""

    def end(handle: Any) -> int:
        ahead.clear()
        return destroy(handle)

    return end


def _forward(info: dict[str, Any], stream: Stream, run: Any, wait: Any, want: Sequence[str], out_dtype: Any, places: int,
             given: dict[str, Any]) -> Any:
    unknown = [name for name in want if name not in OUTPUTS]
    if unknown:
        raise TypeError(f"want: {unknown} are none of {', '.join(OUTPUTS)}")
    args = struct("moecl_forward_args")
    shared = Shared(stream)
    try:
        args.expert_input_group = given.pop("expert_input_group", 0)
        like = _fill_inputs(args, shared, info, given, INPUTS)
        tokens = args.tokens
        args.out_dtype = _arrays.dtype_number(out_dtype)
        plain_dtype = args.out_dtype or info["dtype"]
        ids_dtype = args.ids_dtype or _arrays.NUMBERS["int32"]
        columns = info["expert_hidden"] or info["hidden"]
        kinds = {"out": (plain_dtype, [tokens, columns]), "routed_out": (plain_dtype, [tokens, columns]),
                 "shared_out": (plain_dtype, [tokens, info["hidden"]]), "router_logits": (1, [tokens, info["choices"]]),
                 "topk_ids": (ids_dtype, [tokens, info["top_k"]]), "topk_weights": (1, [tokens, info["top_k"]]),
                 "expert_num_tokens": (ids_dtype, [places]),
                 "expert_rows": (plain_dtype, [tokens * info["top_k"], columns])}
        results = []
        for name in want:
            array = _arrays.empty(like, *kinds[name])
            shared.array(getattr(args, name), array, name, written=True)
            results.append(array)
        run(args)
        shared.fetch(wait)
    finally:
        shared.release()
    return results[0] if len(want) == 1 else tuple(results)


class Layer(Handle):
    """One MoE layer with its weights on one device. `Layer.load` and `Layer.create` make it."""

    def __init__(self, handle: Any, stream: Stream) -> None:
        self._ahead: list[Prefetch] = []
        super().__init__(handle, _destroy_after(self._ahead, lib.moecl_layer_destroy), stream)
        self.stream = stream

    @classmethod
    def load(cls, path: str | os.PathLike[str], layer: int = -1, *, stream: Stream | None = None, **options: Any) -> Layer:
        """Loads a layer of a Hugging Face model directory.

        Args:
            layer: the decoder layer; -1: the first that has experts
            options: fields of moecl_layer_options by name: dtype="bfloat16", quantize="fp8_w8a8_block", ...
        """
        stream, out = stream or default_stream(), ffi.new("moecl_layer**")
        keep: list[Any] = []
        given = struct("moecl_layer_options")
        fill(given[0], options, keep)
        check(lib.moecl_layer_load(stream._handle, os.fsencode(path), layer, given, out))
        return cls(out[0], stream)

    @classmethod
    def create(cls, *, stream: Stream | None = None, options: dict[str, Any] | None = None, **fields: Any) -> Layer:
        """Makes a layer from arrays.

        Args:
            options: fields of moecl_layer_options by name
            fields: those of moecl_layer_desc by name: gate_up [E, 2I, H], down [E, H, I], router [E, H], top_k, ...;
                hidden, intermediate and experts come from `down`
        """
        stream, out = stream or default_stream(), ffi.new("moecl_layer**")
        keep: list[Any] = []
        given = struct("moecl_layer_options")
        fill(given[0], options or {}, keep)
        desc = _description(_with_sizes(fields), keep)
        check(lib.moecl_layer_create(stream._handle, desc, given, out))
        return cls(out[0], stream)

    def replace(self, **fields: Any) -> None:
        """Replaces the weights by others of the same shapes and formats. Takes the fields of `create`."""
        keep: list[Any] = []
        check(lib.moecl_layer_replace(self._handle, self.stream._handle, _description(_with_sizes(fields), keep)))

    def reload(self, path: str | os.PathLike[str], layer: int = -1) -> None:
        """Replaces the weights by those of another checkpoint, of the same shapes and formats."""
        check(lib.moecl_layer_reload(self._handle, self.stream._handle, os.fsencode(path), layer))

    def describe(self) -> dict[str, Any]:
        """The fields of moecl_layer_info: sizes, formats, weight_bytes, ..."""
        info = struct("moecl_layer_info")
        check(lib.moecl_layer_describe(self._handle, info))
        return plain(info)

    def residency(self) -> dict[str, Any]:
        """Statistics of the memory budget, the fields of moecl_residency_counts: hits, misses, prefetched, ..."""
        counts = struct("moecl_residency_counts")
        check(lib.moecl_layer_residency(self._handle, self.stream._handle, counts))
        return plain(counts)

    def compile(self, max_tokens: int) -> None:
        """Compiles now the kernels of passes from x to out of 1 to 16 tokens, of each power of two up to max_tokens,
        and of max_tokens. Other passes may compile at first use."""
        check(lib.moecl_layer_compile(self._handle, self.stream._handle, max_tokens))

    def forward(self, x: Any = None, *, want: Sequence[str] = ("out",), out_dtype: Any = None, **inputs: Any) -> Any:
        """out = MoE(x).

        Args:
            x: [T, H] of the layer's dtype
            want: the outputs to return, of out, routed_out, shared_out, router_logits, topk_ids, topk_weights,
                expert_num_tokens, expert_rows; several are returned as a tuple
            out_dtype: dtype of out, routed_out, shared_out and expert_rows; None: the layer's
            inputs: ids [T, K] with weights [T, K] f32, or given_logits [T, C]; finished [T]; expert_input with
                expert_input_scale and expert_input_group; token_ids [T]

        Returns: out, routed_out [T, L]; shared_out [T, H]; router_logits [T, C] float32; topk_ids [T, K], of ids' dtype;
            topk_weights [T, K] float32; expert_num_tokens [experts here], of ids' dtype; expert_rows [T * K, L]. L is the
            width of latent experts, else H. C is the number of the router's choices. Torch tensors if the first input
            is one, else NumPy arrays.
        Raises: Error. Data on the device is not checked. An id outside [-1, C) counts as no expert. `out` is NaN if a
            work-group came too late, because other work kept the device busy for seconds; several_launches=1 avoids
            this.
        """
        info = self.describe()
        needed = ffi.new("uint64_t*")
        tokens = next((len(array) for array in (x, inputs.get("ids"), inputs.get("expert_input")) if array is not None), 0)
        check(lib.moecl_layer_workspace_bytes(self._handle, tokens, needed))

        def run(args: Any) -> None:
            args.workspace.memory = self.stream.scratch("workspace", needed[0])
            check(lib.moecl_layer_forward(self._handle, self.stream._handle, args, 0, ffi.NULL, ffi.NULL))

        results = _forward(info, self.stream, run, self.stream.finish, want, out_dtype, info["experts"], {"x": x, **inputs})
        self._ahead.clear()
        return results

    __call__ = forward

    def prefetch(self, x: Any = None, *, on: Stream, **inputs: Any) -> Prefetch:
        """Copies the experts that these tokens would choose in this layer to device memory, if the layer has a memory
        budget. Pass the hidden states of an earlier layer: the experts arrive while the layers in between compute.
        Returns at once.

        Args:
            x: [T, H] of the layer's dtype
            on: a stream of the device, other than the stream of the passes
            inputs: ids, given_logits, finished, token_ids, as in `forward`
        """
        needed = ffi.new("uint64_t*")

        def run(args: Any, done: Any) -> None:
            check(lib.moecl_layer_workspace_bytes(self._handle, args.tokens, needed))
            args.workspace.memory = on.scratch("workspace", needed[0])
            check(lib.moecl_layer_prefetch(self._handle, on._handle, args, 0, ffi.NULL, done))

        self._ahead.append(_prefetch(self.describe(), on, run, {"x": x, **inputs}))
        return self._ahead[-1]


def _with_sizes(fields: dict[str, Any]) -> dict[str, Any]:
    down = fields.get("down")
    if down is None:
        return fields
    experts, hidden, intermediate = down.shape
    shared = fields.get("shared_down")
    sizes = {"experts": experts, "hidden": hidden, "intermediate": intermediate}
    if shared is not None:
        sizes["shared_intermediate"] = shared.shape[1]
    return {**sizes, **fields}


class AgreedStep(Handle):
    """A step that all ranks have agreed on once. `ParallelLayer.agree` makes it."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle, lib.moecl_agreed_step_destroy)


class ParallelLayer(Handle):
    """One MoE layer over the ranks of a communicator. Each rank makes its own object and calls the same functions."""

    def __init__(self, handle: Any, communicator: Communicator) -> None:
        self._ahead: list[Prefetch] = []
        super().__init__(handle, _destroy_after(self._ahead, lib.moecl_parallel_layer_destroy), communicator)
        self.communicator = communicator

    @classmethod
    def load(cls, communicator: Communicator, path: str | os.PathLike[str], layer: int = -1, *,
             parallel: dict[str, Any] | None = None, **options: Any) -> ParallelLayer:
        """Loads this rank's part of a layer of a Hugging Face model directory.

        Args:
            parallel: fields of moecl_parallel_options by name: strategy=2, tp=2, wire=1, ...
            options: fields of moecl_layer_options by name
        """
        how, given, keep, out = _options(parallel, options)
        check(lib.moecl_parallel_layer_load(communicator._handle, os.fsencode(path), layer, how, given, out))
        return cls(out[0], communicator)

    @classmethod
    def create(cls, communicator: Communicator, *, parallel: dict[str, Any] | None = None,
               options: dict[str, Any] | None = None, **fields: Any) -> ParallelLayer:
        """Makes the layer from arrays of all experts. `parallel` is as in `load`, the rest as in `Layer.create`."""
        how, given, keep, out = _options(parallel, options)
        desc = _description(_with_sizes(fields), keep)
        check(lib.moecl_parallel_layer_create(communicator._handle, desc, how, given, out))
        return cls(out[0], communicator)

    def describe(self) -> dict[str, Any]:
        """The fields of moecl_parallel_layer_info: sizes, the strategy and its reason, bytes, ..."""
        info = struct("moecl_parallel_layer_info")
        check(lib.moecl_parallel_layer_describe(self._handle, info))
        return plain(info)

    def residency(self) -> dict[str, Any]:
        """Statistics of this rank's memory budget, the fields of moecl_residency_counts."""
        counts = struct("moecl_residency_counts")
        check(lib.moecl_parallel_layer_residency(self._handle, counts))
        return plain(counts)

    def places(self) -> list[int]:
        """The expert of each place of all ranks; -1: the place is free."""
        table = ffi.new("int32_t[]", self.describe()["all_places"])
        check(lib.moecl_parallel_layer_places(self._handle, table, len(table)))
        return list(table)

    def in_group(self, communicator: Communicator, expert_of_place: Sequence[int], *, may_lack: bool = False) -> None:
        """Moves the layer, with its weights, into another group: the remaining ranks of the old group, or more ranks.
        All ranks of the new group call it. A rank that is new loads its layer there with this table, or has loaded it
        in a group of its own (parallel={"may_lack": 1, ...}).

        Args:
            expert_of_place: the expert of each place of all ranks; this rank has as many places as before
            may_lack: places may be free (-1), and experts may have no place
        """
        self._ahead.clear()
        check(lib.moecl_parallel_layer_in_group(self._handle, communicator._handle, list(expert_of_place), len(expert_of_place),
                                                may_lack))
        self.communicator = communicator

    def agree(self, tokens: int, **step: Any) -> AgreedStep:
        """Makes a step that all ranks agree on, for passes of any number of layers. All ranks call it. `tokens` is T of
        this rank; `step` has fields of moecl_step by name."""
        given, out = struct("moecl_step"), ffi.new("moecl_agreed_step**")
        keep: list[Any] = []
        fill(given[0], step, keep)
        check(lib.moecl_parallel_layer_agree(self._handle, given, tokens, out))
        return AgreedStep(out[0])

    def forward(self, x: Any = None, *, want: Sequence[str] = ("out",), out_dtype: Any = None,
                step: AgreedStep | dict[str, Any] | None = None, **inputs: Any) -> Any:
        """out = MoE(x). All ranks call it. Arguments and results are as in `Layer.forward`.

        Args:
            step: a step from `agree`, or fields of moecl_step by name
        """
        info = self.describe()
        keep: list[Any] = []

        def run(args: Any) -> None:
            if isinstance(step, AgreedStep):
                check(lib.moecl_parallel_layer_forward_agreed(self._handle, args, step._handle))
                return
            given = struct("moecl_step")
            fill(given[0], step or {}, keep)
            check(lib.moecl_parallel_layer_forward_step(self._handle, args, given))

        results = _forward(info, self.communicator.stream, run, self.communicator.wait, want, out_dtype, info["places"],
                           {"x": x, **inputs})
        self._ahead.clear()
        return results

    __call__ = forward

    def prefetch(self, x: Any = None, **inputs: Any) -> Prefetch:
        """As `Layer.prefetch`, for the experts at this rank's places that the tokens of all ranks would choose. Runs on
        a queue of the layer. All ranks call it."""

        def run(args: Any, done: Any) -> None:
            check(lib.moecl_parallel_layer_prefetch(self._handle, args, 0, ffi.NULL, done))

        self._ahead.append(_prefetch(self.describe(), self.communicator.stream, run, {"x": x, **inputs}))
        return self._ahead[-1]


class ExpertMigration(Handle):
    """Moves experts to other ranks, concurrently with passes. Each rank makes its own object and calls the same
    functions. Without `commit` the experts keep their old places.

    Args:
        expert_of_place: the new expert of each place of all ranks
        bytes_per_step: most bytes that a rank receives in a step; 0: all at once
    """

    def __init__(self, layer: ParallelLayer, expert_of_place: Sequence[int], *, bytes_per_step: int = 0) -> None:
        out = ffi.new("moecl_expert_migration**")
        check(lib.moecl_expert_migration_create(layer._handle, list(expert_of_place), len(expert_of_place), bytes_per_step, out))
        super().__init__(out[0], lib.moecl_expert_migration_destroy, layer)

    def step(self) -> int:
        """Starts the next moves. Call it between two passes. Returns how many experts no step has started yet."""
        left = ffi.new("int64_t*")
        check(lib.moecl_expert_migration_step(self._handle, left))
        return left[0]

    def commit(self) -> None:
        """Makes later passes use the new places. Call it once all moves have started."""
        check(lib.moecl_expert_migration_commit(self._handle))


def _options(parallel: dict[str, Any] | None, options: dict[str, Any] | None) -> tuple[Any, Any, list[Any], Any]:
    how, given = struct("moecl_parallel_options"), struct("moecl_layer_options")
    keep: list[Any] = []
    fill(how[0], parallel or {}, keep)
    fill(given[0], options or {}, keep)
    return how, given, keep, ffi.new("moecl_parallel_layer**")
