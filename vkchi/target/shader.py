"""A compiled dispatch as plain data: words, argument block, grid. What the emitter hands to the
device and what a cache can store.

Owns: the records. Must not know: ops, Vulkan.

The argument block is what a launch writes: 8-byte pointers first, then 4- and 8-byte values, each
at `offset`. It travels as push constants when `size_bytes` fits the device, otherwise in a buffer
whose address is the only push constant (`indirect`).

A grid count is a nested tuple evaluated on the host at launch:
`("const", 5)`, `("arg", name)` a scalar argument, `("item", name, k)` component k of a tensor
argument, `("dim", name, axis)` an extent of an array, `("wrap", type, a)` a as the integer type
called `type` holds it, and the rows of `COUNT_OPS`. Numbers are Python's, so that what can overflow
in the kernel's own type is wrapped where it matters. Dividing by zero gives 0.

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
# Where a count's leaf stands among the launch's values, as a Python expression over `f`:
# called with ("arg", name, 0), ("item", name, component) or ("dim", name, axis).
Read = Callable[[str, str, int], str]
COUNT_OPS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "neg": "(-{})",
    "max": "max({}, {})", "min": "min({}, {})", "floordiv": "div({}, {})", "mod": "mod({}, {})",
    "trip_count": "trips({}, {}, {})",
}  # fmt: skip
# Among the arrays and numbers of a launch; no name of the user's begins with a dot.
REPORTS, SEED = ".reports", ".seed"  # what kernels report into, and draw random numbers with
MAX_GROUPS = 65535  # in x, on every device; what goes beyond stands in y


class Slot(NamedTuple):
    """One value of the argument block.

    kind `ptr`: 64-bit device address of array `param`; `dim`: i32 extent of axis `axis` of `param`;
    `size`: i32 scalars that may be touched in `param`; `value`: component `axis` of a scalar or
    tensor argument, of type `dtype`; `trash`: address of the block that stray accesses go to;
    `count`: i32 number of loop iterations along an axis of the grid; `base`: i32 number of the
    first one along it that this dispatch runs; `magic_factor`, `magic_shift`: u32s by which numbers
    are divided by the extent of axis `axis` of `param` (`target.magic`), which the host computes.
    """

    kind: str
    param: str
    axis: int
    dtype: str
    offset: int


class GridAxis(NamedTuple):
    """An axis of a grid: `length` iterations along it, `block` of them in a workgroup.

    `guard`: the shader compares its index with the count, so workgroups may stick out. `has_base`:
    there may be more workgroups than the device counts along this axis, so the shader adds what the
    slot `base` says, and a launch may take several dispatches.
    """

    length: Count
    block: int
    guard: bool
    has_base: bool = False


class Grid(NamedTuple):
    """How loop iterations map to invocations, one each: along one to three axes, x first, whose
    counts the host knows; along none, the dispatch is serial: a single invocation.

    Where there is one axis only, workgroups that go beyond x stand in y (`split_groups`).
    """

    axes: tuple[GridAxis, ...] = ()

    @property
    def block(self) -> int:
        """The invocations of a workgroup."""
        return math.prod(axis.block for axis in self.axes)

    @property
    def is_serial(self) -> bool:
        """Whether there is a single invocation."""
        return not self.axes


SERIAL = Grid()


def row_grid(count: Count, block: int, *, guard: bool) -> Grid:
    """A grid of one axis."""
    return Grid((GridAxis(count, block, guard),))


class Shader(NamedTuple):
    """One dispatch. `words` is little-endian SPIR-V; `needs` are Caps field names it relies on."""

    name: str
    words: bytes
    slots: tuple[Slot, ...]
    size_bytes: int
    indirect: bool
    grid: Grid
    needs: tuple[str, ...]


def floor_divide(a: int, b: int) -> int:
    """`a // b`; 0 if b is."""
    return a // b if b else 0


def floor_modulo(a: int, b: int) -> int:
    """`a % b`; 0 if b is."""
    return a % b if b else 0


def trip_count(begin: int, end: int, step: int) -> int:
    """The length of `range(begin, end, step)`, however long it is; 0 if the step is 0."""
    return max(0, -((begin - end) // step)) if step else 0


def mentions(count: Count, name: str) -> bool:
    """Whether a count depends on an argument."""
    if count[0] in ("arg", "item"):
        return bool(count[1] == name)
    return any(mentions(part, name) for part in count[1:] if isinstance(part, tuple))


def count_text(count: Count, read: Read) -> str:
    """A count as a Python expression over `f`, `div`, `mod` and `trips`. Raises InternalError."""
    kind, *rest = count
    if kind == "const":
        return str(int(rest[0]))
    if kind in ("arg", "item", "dim"):
        return read(kind, rest[0], rest[1] if len(rest) > 1 else 0)
    if kind == "wrap":
        return wrap_text(rest[0], count_text(rest[1], read))
    if kind not in COUNT_OPS:
        raise InternalError(f"grid counts have no {kind!r}")
    return COUNT_OPS[kind].format(*(count_text(c, read) for c in rest))


def without_wraps(count: Count) -> Count:
    """The count as it would be if no integer type ended: where the two differ, it overflowed."""
    kind, *rest = count
    if kind == "wrap":
        return without_wraps(rest[1])
    return (kind, *(without_wraps(c) if isinstance(c, tuple) else c for c in rest))


def wrap_text(type_name: str, text: str) -> str:
    """The expression `text` reduced to the range of an integer type."""
    bits = int(type_name[1:])
    mask, half = (1 << bits) - 1, 1 << (bits - 1)
    if type_name[0] == "u":
        return f"({text} & {mask})"
    return f"((({text} + {half}) & {mask}) - {half})"


def compile_count(count: Count, read: Read) -> Callable[[Any], int]:
    """A function from the launch's values (any object that `read` writes expressions about, as
    `f`) to the number of iterations, which may be negative for none. Raises InternalError."""
    text = f"lambda f: {count_text(count, read)}"
    names = {"div": floor_divide, "mod": floor_modulo, "trips": trip_count}
    function: Callable[[Any], int] = eval(text, names)
    return function


def compile_counts(counts: Sequence[Count], read: Read) -> Callable[[Any], tuple[int, ...]]:
    """The same for several counts at once."""
    if all(count[0] == "const" for count in counts):  # most are, and `eval` takes 50 us
        known = tuple([int(count[1]) for count in counts])
        return lambda f: known
    text = "".join(f"{count_text(count, read)}, " for count in counts)
    names = {"div": floor_divide, "mod": floor_modulo, "trips": trip_count}
    function: Callable[[Any], tuple[int, ...]] = eval(f"lambda f: ({text})", names)
    return function


class Check(NamedTuple):
    """What a launch checks before it runs: `test` is a Python expression about `n`, the value as
    if integer types had no end, and `w`, the value; `sentence` a format of {n}."""

    value: Count
    test: str
    sentence: str
    span: Span | None

    def compiled(self, read: Read) -> Callable[[Any], None]:
        """A function of the launch's values. Raises ArgumentError where something is wrong."""
        wrapped = compile_count(self.value, read)
        true = compile_count(without_wraps(self.value), read)
        is_good: Callable[[int, int], bool] = eval(f"lambda n, w: {self.test}")

        def check(flat: Any) -> None:
            n = true(flat)
            if not is_good(n, wrapped(flat)):
                raise ArgumentError(str(CompilationError(self.sentence.format(n=n), self.span)))

        return check


def split_groups(groups: int) -> tuple[int, int]:
    """Groups in x and y: y is the least possible, x times y is `groups` or slightly more."""
    if groups <= MAX_GROUPS:
        return groups, 1
    y = -(-groups // MAX_GROUPS)
    return -(-groups // y), y


# The first iterations that a dispatch runs along each axis, and its workgroups along x, y and z.
Part = tuple[tuple[int, ...], tuple[int, int, int]]


def dispatches_of(grid: Grid, counts: Sequence[int], limits: Sequence[int]) -> list[Part]:
    """What a device runs that counts no more workgroups than `limits` along x, y and z: nothing
    where an axis has no iterations, and several dispatches where it has too many. Raises
    InternalError where the shader does not know of those."""
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
