"""Sends tokens to the ranks of their experts and brings the results back, around the caller's own experts."""
from __future__ import annotations

import weakref
from typing import Any, NamedTuple, Sequence

import numpy

from moecl import _arrays
from moecl._arrays import Array, DType
from moecl._binding import ffi, lib
from moecl._operator import fault_of, raise_fault
from moecl._runtime import Communicator, Handle, InvalidArgument, Shared, check, check_cl, fill, struct

# For each moecl_wire_format: the dtype of the codes that rows travel as.
WIRE_DTYPES = {1: "int8", 2: "uint8", 3: "uint8"}
MXFP8, MX_COLUMNS = 3, 32


class RoutedRows(NamedTuple):
    """The rows that this rank's experts received, one expert after the other. Rows of one expert are in the order
    source rank, token, k. With mc2 over several nodes: index of the source rank within its node, node, token, k."""

    x: Array
    """[rows, H] of the tokens' dtype, or codes of the wire's; batched [local experts, rows_per_expert, H]"""
    x_scale: Array | None
    """of codes: [rows] float32, of mxfp8 [rows, ceil(H / 32)] e8m0 as uint8"""
    row_ends: Array
    """[local experts] int32: where each expert's rows end; batched, their counts added up"""
    first_expert: int
    """of this rank, which has a linear run of all"""
    weights: Array | None
    """[rows] float32, of experts that weight; None unless weights were brought"""
    slot_rows: Array | None
    """[tokens that came, slots] int32, of experts that sum: which rows are a token's; negative: an expert of another rank"""


class TokenDispatcher(Handle):
    """One rank's end of a strategy. Each rank makes its own dispatcher and calls the same functions, in its own thread.

    Args:
        hidden, experts, top_k: H, E and K of the model
        strategy: moecl_strategy: 1 mc2, 2 all-gather, 3 all2allv, 4 multicast
        dtype: of the tokens
        options: fields of moecl_token_dispatcher_options by name: tp, wire, expert_output, batched, rows_per_expert, ...
    """

    def __init__(self, communicator: Communicator, *, hidden: int, experts: int, top_k: int, strategy: int,
                 dtype: DType = "float32", **options: Any) -> None:
        given, out = struct("moecl_token_dispatcher_options"), ffi.new("moecl_token_dispatcher**")
        fields = {"hidden": hidden, "experts": experts, "top_k": top_k, "strategy": strategy, "dtype": dtype, **options}
        fill(given[0], fields, [])
        check(lib.moecl_token_dispatcher_create(communicator._handle, given, out))
        super().__init__(out[0], lib.moecl_token_dispatcher_destroy, communicator)
        self._communicator, self._options = communicator, given
        self._forget: Any = None  # releases the tokens, which peers may read until the combine
        self._like: Any = None
        self._tokens = self._rows = 0

    def dispatch(self, x: Array, ids: Array, weights: Array | None = None, *, tokens_of_ranks: Sequence[int] | None = None,
                 capacity: int = 0) -> RoutedRows:
        """Sends every token to the ranks of its experts. All ranks call it. Do not change the arrays until the combine.

        Args:
            x: [T, H]; T may be 0
            ids: [T, K] int32 or int64; -1: no expert
            weights: [T, K] float32, on every rank or on none; None: every weight is 1
            tokens_of_ranks: T of each rank, if every rank knows these numbers; on every rank or on none
            capacity: with mc2, the tokens of a rank's share that a window has room for; 0: those of the rank with most
        """
        self._end_step()
        args, routed, stream = struct("moecl_dispatch_args"), struct("moecl_routed_rows"), self._communicator.stream
        shared = Shared(stream)
        self._forget = weakref.finalize(self, shared.release)
        tokens = shared.array(args.x, x, "x")
        expected = self._options.dtype or _arrays.NUMBERS["float32"]
        if tokens.dtype != expected or len(tokens.shape) != 2 or tokens.shape[1] != self._options.hidden:
            raise InvalidArgument(f"x: expected [T, {self._options.hidden}] {_arrays.NAMES[expected]}, "
                                  f"got {list(tokens.shape)} {_arrays.dtype_name(x.dtype)}")
        args.tokens, choices = tokens.shape[0], [tokens.shape[0], self._options.top_k]
        for name, array, dtypes in (("ids", ids, ("int32", "int64")), ("weights", weights, ("float32",))):
            if array is None:
                continue
            view = shared.array(getattr(args, name), array, name)
            if list(view.shape) != choices or view.dtype not in [_arrays.NUMBERS[dtype] for dtype in dtypes]:
                raise InvalidArgument(f"{name}: expected {choices} {' or '.join(dtypes)}, "
                                      f"got {list(view.shape)} {_arrays.dtype_name(array.dtype)}")
            if name == "ids":
                args.ids_dtype = view.dtype
        if tokens_of_ranks is not None:
            if len(tokens_of_ranks) != self._communicator.size:
                raise InvalidArgument(f"tokens_of_ranks: expected {self._communicator.size} numbers, got {len(tokens_of_ranks)}")
            known = args.tokens_of_ranks = ffi.new("int64_t[]", list(tokens_of_ranks))
            shared.keep.append(known)
        args.capacity = capacity
        fault = args.fault.memory = fault_of(stream)
        if weights is not None and not tokens.elements:
            args.weights.memory = fault  # not NULL: a rank without tokens must bring weights too
        check(lib.moecl_token_dispatch(self._handle, args, routed))
        self._like, self._tokens, self._rows = x, args.tokens, routed.rows
        came = self._came(routed, shared)
        if shared.fetch(self._communicator.wait, fault):
            raise_fault(stream, fault)
        return self._in_order(routed, came)

    def combine(self, expert_rows: Array) -> Array:
        """Returns [T, H] float32: for each token, the weighted sum of its experts' rows. All ranks call it.

        Args:
            expert_rows: [rows, H] float32, in the order of `dispatch`; from experts that sum, [tokens that came, H]
        """
        if self._forget is None:
            raise InvalidArgument("combine: expected a dispatch before")
        hidden = self._options.hidden
        rows = expert_rows.reshape(-1, hidden)
        room = _arrays.empty(rows, _arrays.NUMBERS["float32"], [max(self._rows, rows.shape[0]), hidden])
        room[: rows.shape[0]] = rows
        out = _arrays.empty(self._like, _arrays.NUMBERS["float32"], [self._tokens, hidden])
        shared = Shared(self._communicator.stream)
        try:
            given, home = ffi.new("moecl_device_array*"), ffi.new("moecl_device_array*")
            shared.array(given, room, "expert_rows")
            shared.array(home, out, "out", written=True)
            check(lib.moecl_token_combine(self._handle, given[0], home[0]))
            shared.fetch(self._communicator.wait)
        finally:
            shared.release()
        self._end_step()
        return out

    def close(self) -> None:
        """Destroys the dispatcher now, and releases the memory that it holds."""
        super().close()
        self._end_step()

    def _end_step(self) -> None:
        if self._forget is not None:
            self._forget()
            self._forget = None

    def _came(self, routed: Any, shared: Shared) -> dict[str, Any]:
        """Copies the outputs out of the dispatcher's memory. The copies are valid once the stream has passed them."""
        hidden, sources = self._options.hidden, routed.source_rows
        codes = WIRE_DTYPES.get(self._options.wire) if routed.x_scale.memory else None
        scales = [sources, -(-hidden // MX_COLUMNS)] if self._options.wire == MXFP8 else [sources]
        kinds = {
            "x": (_arrays.NUMBERS[codes] if codes else self._options.dtype or _arrays.NUMBERS["float32"], [sources, hidden]),
            "x_scale": (_arrays.UINT8 if self._options.wire == MXFP8 else _arrays.NUMBERS["float32"], scales),
            "index": (_arrays.NUMBERS["int32"], [routed.rows]),
            "row_ends": (_arrays.NUMBERS["int32"], [routed.local_experts]),
            "weights": (_arrays.NUMBERS["float32"], [routed.rows]),
            "slot_rows": (_arrays.NUMBERS["int32"], [routed.tokens, routed.slots])}
        came: dict[str, Any] = {}
        for name, (dtype, shape) in kinds.items():
            at = getattr(routed, name)
            if not at.memory:
                continue
            came[name] = _arrays.empty(self._like, dtype, shape)
            address, bytes_ = _arrays.memory_of(came[name])
            if bytes_:
                check_cl(lib.clEnqueueReadBuffer(shared.stream._cl, at.memory, 0, at.offset_bytes, bytes_, ffi.cast("void*", address), 0,
                                                 ffi.NULL, ffi.NULL), f"reading {name}")
        return came

    def _in_order(self, routed: Any, came: dict[str, Any]) -> RoutedRows:
        ends, batched, index = came["row_ends"], routed.rows_per_expert, came.get("index")
        rows = routed.rows if batched else int(ends[-1]) if len(ends) else 0
        at = slice(rows) if index is None else numpy.maximum(numpy.asarray(index)[:rows], 0) // max(routed.index_divisor, 1)
        x = came["x"][at]
        x_scale = came["x_scale"][at] if "x_scale" in came else None
        weights = came["weights"][:rows] if "weights" in came else None
        return RoutedRows(x.reshape(-1, batched, self._options.hidden) if batched else x, x_scale, ends, routed.first_expert,
                          weights, came.get("slot_rows"))
