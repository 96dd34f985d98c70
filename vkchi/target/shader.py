"""A compiled dispatch as plain data: SPIR-V words, argument block, grid.

The emitter produces it; a cache can store it. The argument block is the memory that a launch
writes: 8-byte pointers first, then 8-byte and 4-byte values, each at `offset`. It is passed as push
constants if `size_bytes` fits the device. Otherwise it is in a buffer whose address is the only
push constant (`indirect`).

A grid count is a nested tuple that the host evaluates at launch:

- `("const", 5)`: a constant.
- `("arg", name)`: a scalar argument.
- `("item", name, k)`: component k of a tensor argument.
- `("dim", name, axis)`: the extent of an array along an axis.
- `("word", name, most)`: the length of the active list `name`, in device memory
  (`target.cell_lists`), times a constant in a `mul`. The host evaluates it as `most`.
- `("wrap", type, a)`: the value of `a`, wrapped to the integer type called `type`.
- the operations of `COUNT_OPS`.

Counts use Python integers, so values that may overflow in the kernel's type are wrapped explicitly.
Division by zero gives 0.

    >>> compile_count(("max", ("sub", ("arg", "n"), ("const", 1)), ("const", 0)), read)(values)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.errors import ArgumentError, CompilationError, InternalError
from vkchi.span import Span
from vkchi.tuples import NamedTuple

Count = tuple[Any, ...]
# Returns a count's leaf as a Python expression over `f`, the launch's values.
# Called with ("arg", name, 0), ("item", name, component) or ("dim", name, axis).
Read = Callable[[str, str, int], str]
COUNT_OPS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "neg": "(-{})",
    "max": "max({}, {})", "min": "min({}, {})", "floordiv": "div({}, {})", "mod": "mod({}, {})",
    "trip_count": "trips({}, {}, {})",
}  # fmt: skip
# Internal parameters of a launch; user names never begin with a dot.
REPORTS, SEED = ".reports", ".seed"  # report buffer; seed of random numbers
MAX_GROUPS = 65535  # in x, on every device; excess workgroups are placed in y


class ArgumentSlot(NamedTuple):
    """One value of the argument block, by `kind`:

    - `ptr`: 64-bit device address of array `param`.
    - `dim`: i32 extent of axis `axis` of `param`.
    - `size`: number of accessible scalars in `param`, an i32 or i64 (`dtype`).
    - `value`: component `axis` of a scalar or tensor argument, of type `dtype`.
    - `trash`: address of the block that receives out-of-range accesses.
    - `count`: i32 number of loop iterations along an axis of the grid.
    - `base`: i32 number of the first iteration along an axis that this dispatch runs.
    - `magic_factor`, `magic_shift`: u32 numbers for division by the extent of axis `axis` of
      `param` (`target.magic`), computed by the host.
    """

    kind: str
    param: str
    axis: int
    dtype: str
    offset: int


class GridAxis(NamedTuple):
    """An axis of a grid: `length` iterations along it, `block` of them in a workgroup.

    `guard`: the shader compares its index with the count, so the last workgroup may be partial.
    `has_base`: the shader adds the slot `base` to its index. So a launch may use several dispatches
    if the axis has more workgroups than the device allows.
    """

    length: Count
    block: int
    guard: bool
    has_base: bool = False


class Grid(NamedTuple):
    """Mapping of loop iterations to invocations, one each, along one to three axes, x first.

    The host computes the counts. Without axes, the dispatch is serial: a single invocation. With
    one axis, workgroups beyond the limit in x continue in y (`split_groups`).
    """

    axes: tuple[GridAxis, ...] = ()

    @property
    def block(self) -> int:
        return math.prod(axis.block for axis in self.axes)

    @property
    def is_serial(self) -> bool:
        return not self.axes


SERIAL = Grid()


def row_grid(count: Count, block: int, *, guard: bool) -> Grid:
    return Grid((GridAxis(count, block, guard),))


class Shader(NamedTuple):
    """One dispatch. `words` is little-endian SPIR-V; `needs` are names of the Caps fields that it
    requires."""

    name: str
    words: bytes
    slots: tuple[ArgumentSlot, ...]
    size_bytes: int
    indirect: bool
    grid: Grid
    needs: tuple[str, ...]


def floor_divide(a: int, b: int) -> int:
    return a // b if b else 0


def floor_modulo(a: int, b: int) -> int:
    return a % b if b else 0


def range_length(begin: int, end: int, step: int) -> int:
    """The trip count of `range(begin, end, step)`, of any magnitude; 0 if the step is 0."""
    return max(0, -((begin - end) // step)) if step else 0


NAMES = {"div": floor_divide, "mod": floor_modulo, "trips": range_length}  # in COUNT_OPS


def depends_on_argument(count: Count, name: str) -> bool:
    """True if a count depends on the scalar or tensor argument called `name`."""
    if count[0] in ("arg", "item"):
        return bool(count[1] == name)
    return any(depends_on_argument(part, name) for part in count[1:] if isinstance(part, tuple))


def is_listed(count: Count) -> bool:
    """True for the length of an active list, times a constant."""
    return count[0] == "mul" and bool(count[1][0] == "word")


def count_text(count: Count, read: Read) -> str:
    """Return a count as a Python expression over `f`, `div`, `mod` and `trips`. Raises
    InternalError for an unknown operation."""
    kind, *rest = count
    if kind == "const":
        return str(int(rest[0]))
    if kind in ("arg", "item", "dim"):
        return read(kind, rest[0], rest[1] if len(rest) > 1 else 0)
    if kind == "word":
        return str(int(rest[1]))
    if kind == "wrap":
        return wrap_text(rest[0], count_text(rest[1], read))
    if kind not in COUNT_OPS:
        raise InternalError(f"grid counts have no {kind!r}")
    return COUNT_OPS[kind].format(*(count_text(c, read) for c in rest))


def without_wraps(count: Count) -> Count:
    """Return the count without its wraps. If the two values differ, the wrapped one overflowed."""
    kind, *rest = count
    if kind == "wrap":
        return without_wraps(rest[1])
    return (kind, *(without_wraps(c) if isinstance(c, tuple) else c for c in rest))


def wrap_text(type_name: str, text: str) -> str:
    bits = int(type_name[1:])
    mask, half = (1 << bits) - 1, 1 << (bits - 1)
    if type_name[0] == "u":
        return f"({text} & {mask})"
    return f"((({text} + {half}) & {mask}) - {half})"


def compile_count(count: Count, read: Read) -> Callable[[Any], int]:
    """Compile a count to a function of the launch's values, passed as `f` (see `Read`). A negative
    result means no iterations. Raises InternalError for an unknown operation."""
    function: Callable[[Any], int] = eval(f"lambda f: {count_text(count, read)}", NAMES.copy())
    return function


def compile_counts(counts: Sequence[Count], read: Read) -> Callable[[Any], tuple[int, ...]]:
    """Like `compile_count`, for several counts at once."""
    if all(count[0] == "const" for count in counts):  # the common case; `eval` takes 50 us
        known = tuple([int(count[1]) for count in counts])
        return lambda f: known
    text = "".join(f"{count_text(count, read)}, " for count in counts)
    function: Callable[[Any], tuple[int, ...]] = eval(f"lambda f: ({text})", NAMES.copy())
    return function


class Check(NamedTuple):
    """A condition that a launch checks before it runs.

    `test` is a Python expression over `n`, the value in unbounded integers, and `w`, the wrapped
    value. `sentence` is a format string for the error message, with `{n}`.
    """

    value: Count
    test: str
    sentence: str
    span: Span | None

    def compiled(self, read: Read) -> Callable[[Any], None]:
        """A function of the launch's values that raises ArgumentError if the condition fails."""
        wrapped = compile_count(self.value, read)
        true = compile_count(without_wraps(self.value), read)
        is_good: Callable[[int, int], bool] = eval(f"lambda n, w: {self.test}")

        def check(flat: Any) -> None:
            n = true(flat)
            if not is_good(n, wrapped(flat)):
                raise ArgumentError(str(CompilationError(self.sentence.format(n=n), self.span)))

        return check


def split_groups(groups: int) -> tuple[int, int]:
    """Split workgroups into x and y: y is minimal, and x * y is `groups` or slightly more."""
    if groups <= MAX_GROUPS:
        return groups, 1
    y = -(-groups // MAX_GROUPS)
    return -(-groups // y), y


# First iteration of a dispatch along each axis, and its workgroups along x, y and z.
Part = tuple[tuple[int, ...], tuple[int, int, int]]


def split_grid(grid: Grid, counts: Sequence[int], limits: Sequence[int]) -> list[Part]:
    """Split a grid into dispatches, each with its first iterations and its workgroups along x, y
    and z.

    Each of several axes gets at most the number of workgroups in `limits` per dispatch. A grid with
    one axis or none is one dispatch, and `limits` are ignored. The list is empty if an axis has no
    iterations. Raises InternalError if one of several axes needs several dispatches but has no
    `base`.
    """
    if any(n <= 0 for n in counts):
        return []
    groups = [-(-n // axis.block) for n, axis in zip(counts, grid.axes, strict=True)]
    if len(groups) < 2:
        return [((0,) * len(groups), (*(split_groups(groups[0]) if groups else (1, 1)), 1))]
    pairs = zip(groups, grid.axes, limits, strict=False)
    if any(n > limit and not axis.has_base for n, axis, limit in pairs):
        raise InternalError(f"{groups} workgroups on a device that counts {limits}: {grid}")
    found: list[Part] = []
    starts = [range(0, n, limit) for n, limit in zip(groups, limits, strict=False)]
    for first in itertools.product(*starts):
        bases = tuple([k * axis.block for k, axis in zip(first, grid.axes, strict=True)])
        here = [min(limit, n - k) for k, n, limit in zip(first, groups, limits, strict=False)]
        x, y, z = [*here, 1][:3]
        found.append((bases, (x, y, z)))
    return found
