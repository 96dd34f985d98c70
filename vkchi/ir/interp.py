"""Reference interpreter: runs IR in numpy, one invocation at a time.

Arguments are bound by parameter name. An array is a numpy array of the element's dtype (u1: bool).
Its shape is its logical shape plus the element's shape (`array<f32<3>[?]>`: `(n, 3)`). It is
changed in place. Its stored type is ignored; its layout matters only to origins and `address`.
Scalars and tensors are numbers or numpy values. Missing arrays of static shape for temporaries
(`.temp.*`) and reports are created, zeroed.

Behaviour that devices leave open is fixed here:
- An out-of-range load returns 0; an out-of-range store or atomic does nothing. `elem` checks each
  axis on its own.
- Iterations of a `parallel` run in order. If the body has a `barrier`, the invocations of a
  workgroup run in lockstep from barrier to barrier.
- The default workgroup size is DEFAULT_BLOCK. The last workgroup may be short, but `grid_size`
  counts it as full. Serial code is one invocation in a workgroup of one.
- A subgroup is one invocation: reductions return their argument, exclusive ones the identity.
- Shared memory starts as zeros.
- `report_failure` ends its invocation. In serial code this is the rest of the Func.

Random numbers are those of `semantics`.

    >>> x = np.zeros(4, np.float32); run_reference(fn, {"x": x, "a": 2.0}); x
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from math import prod
from typing import Any

from vkchi.errors import ArgumentError, InternalError
from vkchi.ir.core import TEMP, Func, Op, Param, Program, Region, Value, constant_array, walk
from vkchi.ir.op_table.invocation_ops import REFERENCE, REPORTS
from vkchi.ir.op_table.memory_ops import address_constant
from vkchi.ir.op_table.semantics import first_state, next_state, output_of
from vkchi.ir.ops import ATOMICS, TABLE, WRITES, axes_of
from vkchi.target.magic import MAGIC
from vkchi.target.shader import REPORTS as REPORT_ARRAY
from vkchi.target.shader import SEED
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, Tensor, Type, bf16, scalar_of, shape_of
from vkchi.types.bfloat16 import convert, decode, encode
from vkchi.types.layout import shares_words
from vkchi.types.lazy_numpy import np
from vkchi.types.packed_numbers import NumpyLanes

# --- memory --------------------------------------------------------------------------------------
#
# Memory of the reference interpreter: values of arrays and pointers.
#
# An array is a numpy array of its logical shape plus the element's shape. Memory layout matters
# only to `address`, which counts scalars in memory order, and to the origin of indices. Locations
# outside of an array and padding between its scalars read as 0; writes to them are ignored.

Numbers = list[tuple[tuple[int, ...], int]]  # (index with component, first bit)


class ElementPointer:
    """A pointer to an element or component: `array[index]`. `index` is None if it is out of
    range."""

    __slots__ = ("array", "index", "type")

    def __init__(self, array: Any, index: tuple[int, ...] | None, t: Type) -> None:
        self.array, self.index, self.type = array, index, t

    def load(self) -> Any:
        if self.index is None:
            return zero_of(self.type)
        return np.array(self.array[self.index])[()]

    def store(self, v: Any) -> None:
        if self.index is not None:
            self.array[self.index] = v

    def member(self, k: int) -> ElementPointer:
        if self.index is None:
            return ElementPointer(self.array, None, scalar_of(self.type))
        inner = tuple(int(i) for i in np.unravel_index(k, shape_of(self.type)))
        return ElementPointer(self.array, self.index + inner, scalar_of(self.type))


class ScalarsPointer:
    """A pointer to consecutive scalars of `array`, accessed as one value of scalar or tensor type
    `t`.

    `indices` are those of the scalars, None where out of range. A scalar of the accessed type
    covers one or several of them; their bits are reinterpreted.
    """

    __slots__ = ("array", "indices", "type")

    def __init__(self, array: Any, indices: Sequence[tuple[int, ...] | None], t: Type) -> None:
        self.array, self.indices, self.type = array, indices, t

    def load(self) -> Any:
        t = scalar_of(self.type)
        zero = self.array.dtype.type(0)
        found = [zero if index is None else self.array[index] for index in self.indices]
        if t.dtype.itemsize > zero.itemsize:
            values = np.array(found).view(t.dtype)
        else:
            values = np.array([reinterpret_scalar(v, t.dtype) for v in found])
        return checked_value(values.reshape(shape_of(self.type)), self.type)

    def store(self, v: Any) -> None:
        parts = np.asarray(v).reshape(-1)
        if parts.dtype.itemsize > self.array.dtype.itemsize:
            parts = parts.view(self.array.dtype)
        for index, part in zip(self.indices, parts, strict=True):
            if index is not None:
                self.array[index] = reinterpret_scalar(part, self.array.dtype)

    def member(self, k: int) -> ScalarsPointer:
        count = len(self.indices) // prod(shape_of(self.type))  # scalars of a component
        part = self.indices[k * count : (k + 1) * count]
        return ScalarsPointer(self.array, part, scalar_of(self.type))


def reinterpret_scalar(v: Any, dtype: Any) -> Any:
    """Return the scalar `v` with the same bits in another dtype. To and from bool it is a
    conversion."""
    if v.dtype == dtype:
        return v
    if v.dtype.kind == "b" or dtype.kind == "b":
        return v.astype(dtype)
    return np.ascontiguousarray(v).view(dtype).reshape(())[()]


class WordPointer:
    """A pointer to the 32-bit word that contains the narrower scalar at `place`.

    Loads return the scalar in the low bits and zeros above. Stores write the scalar from the low
    bits and ignore the others.
    """

    __slots__ = ("place",)

    def __init__(self, place: ElementPointer | ScalarsPointer) -> None:
        self.place = place

    def load(self) -> Any:
        return self.put(self.place.load())

    def store(self, bits: Any) -> None:
        self.place.store(self.get(bits))

    def get(self, bits: Any) -> Any:
        t = scalar_of(self.place.type)
        raw = np.uint32(bits).tobytes()[: t.dtype.itemsize]
        return t.dtype.type(bits & 1) if t.kind == "b" else np.frombuffer(raw, t.dtype)[0]

    def put(self, v: Any) -> Any:
        return np.uint32(int.from_bytes(np.asarray(v).tobytes(), "little"))


class ArrayValue:
    """A numpy array with its IR type, which gives the origin of its indices and its layout."""

    __slots__ = ("array", "table", "type", "words")

    def __init__(self, array: Any, t: Array) -> None:
        self.array, self.type = array, t
        self.words: dict[int, Numbers] = {}  # only for bit-packed elements
        self.table: dict[int, tuple[int, ...]] | None = None

    def place(self, indices: Sequence[Any]) -> ElementPointer:
        """Return a pointer to the element at `indices`, out of range if any index is."""
        t = self.type
        origin = t.layout.origin if t.layout is not None and t.layout.origin else (0,) * t.ndim
        index = tuple(int(k) - first for k, first in zip(indices, origin, strict=True))
        inside = all(0 <= k < extent for k, extent in zip(index, self.array.shape))
        return ElementPointer(self.array, index if inside else None, t.elem)

    def cells(
        self, constant: int, operands: Sequence[Any], pointer: Ptr
    ) -> ScalarsPointer | PackedWordPointer:
        """Return the pointer of an `address` op.

        It begins at scalar `constant + operands[0]` in memory order, wrapped to the operand's
        width. In an array of bit-packed elements that number counts words. The pointer is out of
        range if `operands[1]` is false.
        """
        t = pointer.elem
        first = constant
        if operands:
            first = (constant + int(operands[0])) % (1 << 8 * operands[0].itemsize)
        is_harmless = len(operands) == 2 and not operands[1]
        if shares_words(self.type.layout):
            self.words = self.words or numbers_by_word(self.type, self.array.shape)
            return PackedWordPointer(self, [] if is_harmless else self.words.get(first, []))
        count = 1 if isinstance(t, Scalar) else t.size
        count *= max(1, scalar_of(t).dtype.itemsize // self.array.dtype.itemsize)
        found = [None if is_harmless else self.index_of(first + k) for k in range(count)]
        return ScalarsPointer(self.array, found, t)

    def index_of(self, scalar: int) -> tuple[int, ...] | None:
        """Return the numpy index of a scalar by its offset in memory, or None for an offset without
        one."""
        if self.type.layout is None:
            if not 0 <= scalar < self.array.size:
                return None
            return tuple(int(k) for k in np.unravel_index(scalar, self.array.shape))
        if self.table is None:
            self.table = scalars_of(self.type, self.array.shape)
        return self.table.get(scalar)


class PackedWordPointer:
    """A pointer to a word of an array of bit-packed elements.

    Bits that belong to no element read as 0, and stores ignore them.
    """

    __slots__ = ("array", "layout", "numbers")

    def __init__(self, value: ArrayValue, numbers: Numbers) -> None:
        self.array, self.layout, self.numbers = value.array, value.type.layout, numbers

    def load(self) -> Any:
        layout: Any = self.layout
        found = layout.word.dtype.type(0)
        for index, bit in self.numbers:
            found |= layout.put(NumpyLanes(self.array[index]), bit).v
        return found

    def store(self, v: Any) -> None:
        layout: Any = self.layout
        for index, bit in self.numbers:
            self.array[index] = layout.take(NumpyLanes(v), bit).v


def numbers_by_word(t: Array, shape: tuple[int, ...]) -> dict[int, Numbers]:
    """Map the offset of each word of an array of bit-packed elements to its scalars.

    A scalar is given as (index, first bit in the word); the index includes its component.
    """
    layout: Any = t.layout
    inner = shape_of(t.elem)
    table: dict[int, Numbers] = {}
    for index in np.ndindex(shape[: t.ndim]):
        numbers = table.setdefault(int(layout.offset(index)), [])
        for start, at in zip(layout.starts, np.ndindex(inner), strict=True):
            numbers.append(((*index, *at), int(layout.bit(index)) + start))
    return table


def scalars_of(t: Array, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Map the memory offset of each scalar of an array with a layout to its index, component
    included."""
    assert t.layout is not None
    inner = shape_of(t.elem)
    table = {}
    for index in np.ndindex(shape[: t.ndim]):
        first = t.layout.offset(index)
        for component, at in zip(t.layout.components, np.ndindex(inner), strict=True):
            table[first + component] = (*index, *at)
    return table


# --- evaluation of pure ops ----------------------------------------------------------------------
#
# Evaluation of pure ops on numpy values, by the numpy meanings in the op table.
#
# Values are numpy scalars, or arrays of a tensor's shape. They are never modified.
#
#     >>> evaluate("add", (np.int32(2**31 - 1), np.int32(1)), None, i32)
#     np.int32(-2147483648)

Call = Callable[[Sequence[Any], Any, Type], Any]


def evaluate(kind: str, args: Sequence[Any], attr: Any, t: Type) -> Any:
    """Return the value of type `t` that an op computes from `args`.

    Call it under `np.errstate(all="ignore")`: numpy warns about cases that are defined here.

    Raises InternalError for an op without a numpy meaning, and if the computed value has another
    dtype or shape than `t`.
    """
    call = _CALLS.get(kind)
    if call is not None:
        result = call(args, attr, t)
    else:
        result = _meaning(kind)(*args)
    if isinstance(t, Scalar | Tensor) and scalar_of(t) is bf16:
        result = convert(np.asarray(result), bf16)
    return checked_value(result, t, kind)


def is_evaluable(kind: str) -> bool:
    return kind in _CALLS or TABLE[kind].numpy is not None


def checked_value(result: Any, t: Type, kind: str = "value") -> Any:
    """Return `result` as a numpy scalar, or as an array if `t` is a tensor.

    Raises InternalError, which names `kind`, if dtype or shape differ from those of `t`.
    """
    elem = scalar_of(t)
    if type(result) is elem.dtype.type and t is elem:
        return result
    array = np.asarray(result)
    if array.dtype != elem.dtype or array.shape != shape_of(t):
        got = f"{array.dtype}{list(array.shape)}"
        raise InternalError(f"the meaning of `{kind}` gives {got} where {t} is due")
    return array if isinstance(t, Tensor) else array[()]


def zero_of(t: Type) -> Any:
    return checked_value(np.zeros(shape_of(t), scalar_of(t).dtype), t)


def _meaning(kind: str) -> Callable[..., Any]:
    numpy = TABLE[kind].numpy
    if numpy is None:
        raise InternalError(f"`{kind}` has no meaning on values alone")
    return numpy


def _insert(args: Sequence[Any], attr: Any, t: Type) -> Any:
    """Evaluate `insert` (component `attr`) and `insert_at` (component args[2]).

    An out-of-range component leaves the tensor as it is.
    """
    flat = args[0].reshape(-1).copy()
    k = int(args[2]) if attr is None else attr
    if 0 <= k < flat.size:
        flat[k] = args[1]
    return flat.reshape(shape_of(t))


def bits_as(value: Any, t: Scalar) -> Any:
    """Return a value's bits as type t. Of bf16, which is held as f32, they are 16 bits."""
    raw = encode(value) if value.dtype == np.float32 and t.size_bytes == 2 else value
    bitcast = _meaning("bitcast")
    return decode(bitcast(raw, bf16.memory_dtype)) if t is bf16 else bitcast(raw, t.dtype)


# Ops whose meaning needs the attr or the result type, or that have none in the table.
_CALLS: dict[str, Call] = {
    "cast": lambda args, attr, t: _meaning("cast")(args[0], _dtype(t)),
    "bitcast": lambda args, attr, t: bits_as(args[0], scalar_of(t)),
    "splat": lambda args, attr, t: _meaning("splat")(args[0], shape_of(t)),
    "pack": lambda args, attr, t: _meaning("pack")(*args, shape=shape_of(t)),
    "extract": lambda args, attr, t: _meaning("extract")(args[0], attr),
    "insert": _insert,
    "insert_at": _insert,
}


def _dtype(t: Type) -> np.dtype[Any]:
    elem: Scalar = scalar_of(t)
    return elem.dtype


# --- execution -----------------------------------------------------------------------------------

DEFAULT_BLOCK = 64
STEP_LIMIT = 10_000_000  # loop iterations per Func; beyond it, a loop is taken to be infinite
SIZE_LIMIT = 1 << 26  # scalars per array: enough for examples and tests
AXES_LIMIT = 32  # numpy's limit before 2.0

Compute = Callable[[str, Sequence[Any], Any, Type], Any]  # signature of `evaluate`
Watch = Callable[[Op, Any, "tuple[int, ...] | None"], None]
Steps = Generator[None, None, tuple[Any, ...]]  # yields at barriers


class InterpreterReport(NamedTuple):
    """A message of a report op: its kind and site, the invocation, the values."""

    kind: str
    site: int
    thread: int
    values: tuple[Any, ...]


class _Stopped(Exception):
    """Raised to end an invocation: a check failed, or an `exit_invocation` was executed."""


def run_reference(
    code: Func | Program,
    args: Mapping[str, Any],
    reports: list[InterpreterReport] | None = None,
    compute: Compute = evaluate,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run the code, modifying the arrays of `args` in place; return all arrays by name.

    The result includes temporaries and tensor parameters. Reports of the code are appended to
    `reports`, if given.

    - compute: replaces `evaluate`, to simulate devices that compute differently within Vulkan's
      limits.
    - watch: called before each store or atomic with the op, the array and the index. The index is
      None if out of range. Accesses through `address` and `word` are not watched; private variables
      are.

    Raises ArgumentError for missing arguments, for arrays that do not fit the parameters, and for
    shared arrays beyond `check_size`. Raises InternalError for scalars and tensors of another
    shape, and for a Func with more than STEP_LIMIT loop iterations.
    """
    funcs = code.funcs if isinstance(code, Program) else (code,)
    bound: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for fn in funcs:
            for p in fn.params:
                if p.name not in bound:
                    bound[p.name] = _bind(p, args)
            DispatchRun(fn, bound, [] if reports is None else reports, compute, watch).run()
    return {name: v for name, v in bound.items() if isinstance(v, np.ndarray)}


def check_size(what: str, shape: tuple[int, ...]) -> None:
    """Raise ArgumentError if `shape` has more than AXES_LIMIT axes or SIZE_LIMIT scalars.

    The message begins with `what`.
    """
    if len(shape) > AXES_LIMIT:
        raise ArgumentError(
            f"{what}: the interpreter takes arrays of {AXES_LIMIT} axes at most, not {len(shape)}"
        )
    if prod(shape) > SIZE_LIMIT:
        raise ArgumentError(
            f"{what}: the interpreter takes arrays of {SIZE_LIMIT} numbers at most, "
            f"not {prod(shape)}; it is meant for small examples"
        )


def _bind(p: Param, args: Mapping[str, Any]) -> Any:
    t = p.type
    is_own = p.name == REPORT_ARRAY or p.name.startswith(TEMP)
    if p.name not in args and is_own and isinstance(t, Array) and t.shape is not None:
        return np.zeros(t.shape + shape_of(t.elem), scalar_of(t.elem).dtype)
    if p.name not in args:
        raise ArgumentError(f"argument `{p.name}` ({t}) is missing")
    value = args[p.name]
    if not isinstance(t, Array):
        return checked_value(np.asarray(value).astype(scalar_of(t).dtype), t, p.name)
    element = shape_of(t.elem)
    fits = isinstance(value, np.ndarray) and value.dtype == scalar_of(t.elem).dtype
    fits = fits and value.ndim == t.ndim + len(element) and value.shape[t.ndim :] == element
    if not fits or (t.shape is not None and value.shape[: t.ndim] != t.shape):
        what = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
        raise ArgumentError(f"argument `{p.name}` is {what}, which is no {t}")
    return value


# --- execution -------------------------------------------------------------------------------


class DispatchRun:
    """Execution of one Func. `env` holds the values defined so far, `steps` counts loop
    iterations."""

    def __init__(
        self, fn: Func, bound: Mapping[str, Any], reports: list[InterpreterReport],
        compute: Compute,
        watch: Watch | None,
    ) -> None:  # fmt: skip
        self.fn, self.reports, self.compute, self.watch = fn, reports, compute, watch
        self.steps = 0
        self.seed = int(bound.get(SEED, 0))
        self.env: dict[Value, Any] = {}
        for p in fn.params:
            v = bound[p.name]
            self.env[p] = ArrayValue(v, p.type) if isinstance(p.type, Array) else v

    def run(self) -> None:
        _finish(Invocation(self, self.env, 0, 1, 1, {}).region(self.fn.body, ()))

    def count_step(self) -> None:
        """Count a loop iteration. Raises InternalError after more than STEP_LIMIT of them."""
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise InternalError(f"@{self.fn.name}: no end after {STEP_LIMIT} iterations")

    def parallel(self, op: Op) -> None:
        axes = [range(int(self.env[a.begin]), int(self.env[a.end])) for a in axes_of(op)]
        types = [scalar_of(p.type).dtype.type for p in op.regions[0].params]
        block = prod(op.attr) if isinstance(op.attr, tuple) else op.attr or DEFAULT_BLOCK
        count = prod(max(0, axis.stop - axis.start) for axis in axes)
        grid = -(-count // block) * block
        lockstep = any(inner.kind == "barrier" for inner in walk(op.regions[0]))
        for start in range(0, count, block):
            shared: dict[Op, Any] = {}
            threads = range(start, min(start + block, count))
            runs = []
            for k in threads:
                self.count_step()
                env = dict(self.env) if lockstep else self.env
                invocation = Invocation(self, env, k, block, grid, shared)
                indices = [t(i) for t, i in zip(types, indices_of(axes, k))]
                runs.append(invocation.region(op.regions[0], indices))
                if not lockstep:
                    _finish(runs.pop())
            _run_lockstep(runs)


def indices_of(axes: Sequence[range], number: int) -> list[int]:
    """Return the indices of an iteration by its number; the last axis varies fastest."""
    found = []
    for axis in reversed(axes):
        number, k = divmod(number, len(axis))
        found.append(axis.start + k)
    return found[::-1]


def _finish(steps: Steps) -> tuple[Any, ...]:
    """Run one invocation to its end. Return the values that it yields, or () if it was stopped.

    Barriers do not block it.
    """
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return tuple(stop.value)
        except _Stopped:
            return ()


def _run_lockstep(runs: list[Steps]) -> None:
    while runs:
        runs = [steps for steps in runs if _goes_on(steps)]


def _goes_on(steps: Steps) -> bool:
    """Run an invocation to its next barrier. Return False if it ended before one."""
    try:
        next(steps)
    except (StopIteration, _Stopped):
        return False
    return True


class Invocation:
    """State of one invocation: its values, its position in the grid, its random stream."""

    __slots__ = ("block", "dispatch", "env", "grid", "index", "shared", "state")

    def __init__(
        self,
        dispatch: DispatchRun,
        env: dict[Value, Any],
        index: int,
        block: int,
        grid: int,
        shared: dict[Op, Any],
    ) -> None:
        self.dispatch, self.env, self.index = dispatch, env, index
        self.block, self.grid, self.shared = block, grid, shared
        self.state: int | None = None

    def region(self, region: Region, values: Sequence[Any]) -> Steps:
        """Run a region with values for its parameters; return its yielded values.

        A generator, which yields at each barrier.
        """
        env = self.env
        env.update(zip(region.params, values, strict=True))
        for op in region.ops:
            kind = op.kind
            control = _CONTROL.get(kind)
            if control is not None:
                results = yield from control(self, op)
                env.update(zip(op.results, results, strict=True))
            elif kind == "barrier":
                yield
            elif kind == "yield":
                break
            else:
                env[op] = self.value(op)
        return tuple(env[v] for v in region.yielded)

    def results(self, op: Op) -> tuple[Any, ...]:
        """Run an op with regions and return its results; () if the invocation was stopped
        inside."""
        return _finish(_CONTROL[op.kind](self, op))

    def value(self, op: Op) -> Any:
        """Run an op without regions and return its value.

        Calls `watch`, if set, before stores and atomics through an ElementPointer.
        """
        args = [self.env[v] for v in op.args]
        act = _ACTS.get(op.kind)
        if act is not None:
            if (
                self.dispatch.watch is not None
                and op.kind in WRITES
                and type(args[0]) is ElementPointer
            ):
                self.dispatch.watch(op, args[0].array, args[0].index)
            return act(self, op, args)
        return self.dispatch.compute(op.kind, args, op.attr, op.type)

    def if_(self, op: Op) -> Steps:
        then, orelse = op.regions
        return (yield from self.region(then if self.env[op.args[0]] else orelse, ()))

    def for_(self, op: Op) -> Steps:
        begin, end, *first = (self.env[v] for v in op.args)
        carried = tuple(first)
        index = scalar_of(op.args[0].type).dtype.type
        for k in range(int(begin), int(end)):
            self.dispatch.count_step()
            carried = yield from self.region(op.regions[0], (index(k), *carried))
        return carried

    def while_(self, op: Op) -> Steps:
        carried: tuple[Any, ...] = tuple(self.env[v] for v in op.args)
        cond, body = op.regions
        while (yield from self.region(cond, carried))[0]:
            self.dispatch.count_step()
            carried = yield from self.region(body, carried)
        return carried

    def parallel(self, op: Op) -> Steps:
        self.dispatch.parallel(op)
        return ()
        yield

    def local(self, op: Op, args: list[Any]) -> ElementPointer:
        return ElementPointer(np.array(args[0]), (), op.args[0].type)

    def shared_array(self, op: Op, args: list[Any]) -> ArrayValue:
        """Return the workgroup's shared array of this op. The first use creates it, zeroed."""
        t = op.type
        assert isinstance(t, Array) and t.shape is not None
        if op not in self.shared:
            shape = t.shape + shape_of(t.elem)
            check_size("shared memory", shape)
            self.shared[op] = np.zeros(shape, scalar_of(t.elem).dtype)
        return ArrayValue(self.shared[op], t)

    def random(self, op: Op, args: list[Any]) -> Any:
        if self.state is None:
            self.state = first_state(self.dispatch.seed, self.index)
        self.state = next_state(self.state)
        return np.uint32(output_of(self.state))

    def atomic(self, op: Op, args: list[Any]) -> Any:
        place, operands = args[0], args[1:]
        old = place.load()
        if op.kind == "atomic_cas":
            same = [np.asarray(x).view(f"u{x.itemsize}") for x in (old, operands[0])]
            new = np.where(same[0] == same[1], operands[1], old)[()]
        else:
            new = TABLE[op.kind].numpy(old, operands[0])  # type: ignore[misc]
        place.store(new)
        return old

    def report(self, op: Op, args: list[Any]) -> None:
        reports = self.dispatch.reports
        if op.kind != "report_once" or not any(r.site == op.attr for r in reports):
            reports.append(InterpreterReport(op.kind, op.attr, int(args[0]), tuple(args[1:])))
        if op.kind == "report_failure":
            raise _Stopped

    def exit_invocation(self, op: Op, args: list[Any]) -> None:
        raise _Stopped


Act = Callable[[Invocation, Op, list[Any]], Any]


def _magic(number: Callable[[int], int]) -> Act:
    return lambda run, op, args: np.uint32(number(args[0].array.shape[op.attr]))


def _alone(kind: str) -> Act:
    return lambda run, op, args: REFERENCE[kind](args, op.type)


_CONTROL: dict[str, Callable[[Invocation, Op], Steps]] = {
    "if": Invocation.if_,
    "for": Invocation.for_,
    "while": Invocation.while_,
    "parallel": Invocation.parallel,
}
_ACTS: dict[str, Act] = {
    "const": lambda run, op, args: constant_array(op),
    "elem": lambda run, op, args: args[0].place(args[1:]),
    "member": lambda run, op, args: args[0].member(op.attr),
    "member_at": lambda run, op, args: args[0].member(
        min(max(int(args[1]), 0), args[0].type.size - 1)
    ),
    "shape": lambda run, op, args: np.int32(args[0].array.shape[op.attr]),
    "load": lambda run, op, args: args[0].load(),
    "store": lambda run, op, args: args[0].store(args[1]),
    "local": Invocation.local,
    "shared": Invocation.shared_array,
    "random": Invocation.random,
    "atomic_exchange": Invocation.atomic,
    "atomic_cas": Invocation.atomic,
    "fence": lambda run, op, args: None,
    "thread_index": lambda run, op, args: np.int32(run.index),
    "local_index": lambda run, op, args: np.int32(run.index % run.block),
    "group_index": lambda run, op, args: np.int32(run.index // run.block),
    "group_size": lambda run, op, args: np.int32(run.block),
    "grid_size": lambda run, op, args: np.int32(run.grid),
    "address": lambda run, op, args: args[0].cells(address_constant(op.attr), args[1:], op.type),
    "size": lambda run, op, args: scalar_of(op.type).dtype.type(args[0].array.size),
    "word": lambda run, op, args: WordPointer(args[0]),
    "word_shift": lambda run, op, args: np.uint32(0),
    "exit_invocation": Invocation.exit_invocation,
}
_ACTS.update((kind, _magic(number)) for kind, number in MAGIC.items())
_ACTS.update(dict.fromkeys(ATOMICS, Invocation.atomic))
_ACTS.update(dict.fromkeys(REPORTS, Invocation.report))
_ACTS.update((kind, _alone(kind)) for kind in REFERENCE)


def is_interpretable(kind: str) -> bool:
    """True if the interpreter implements the op, as it does for every row of the op table."""
    return kind in _ACTS or kind in _CONTROL or kind in ("barrier", "yield") or is_evaluable(kind)
