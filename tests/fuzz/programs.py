"""Random well-typed IR programs with a defined result, drawn from the op table.

    case = generate(seed)             # a kernel: serial code and `parallel` loops
    run(case.fn, case.args())         # fresh arguments each time

No result depends on the order of iterations or on undefined behaviour of an op, so a compiler must
reproduce the interpreter's result:
- divisors are not zero, indices of arrays are in bounds, floats cast to integers fit, and `min`
  and `max` of floats never get two zeros;
- an array in a `parallel` is only read, or each iteration accesses its own element, or it is only
  the target of one commutative atomic whose result is exact in any order;
- loops end, and floats that could grow are usually clamped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz import guards
from tests.fuzz.layouts import tree_layouts
from tests.fuzz.tensors import COMPUTED, SPECIAL
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Result, Value
from vkchi.ir.op_table.table import OpSignature, SignatureError
from vkchi.ir.ops import TABLE
from vkchi.types import (
    SCALARS,
    Affine,
    Array,
    AxisTerm,
    Layout,
    Scalar,
    Tensor,
    Type,
    bf16,
    f32,
    i32,
    row_major,
    scalar_of,
    shape_of,
    u1,
    u32,
    with_shape,
)

Number = Scalar | Tensor
SHAPES = ((2,), (3,), (4,), (2, 2), (2, 3), (3, 3))
MOST_ITERATIONS = 6  # of a parallel loop; every array has at least as many elements
MOST_DEPTH = 3


class Profile(NamedTuple):
    """The scalar types of programs, the ops allowed on floats (None: all), and whether a float's
    bits may become an integer's."""

    scalars: tuple[Scalar, ...]
    float_rows: frozenset[str] | None = None
    has_float_bits: bool = False


# Without bf16, which numpy does not compute with.
_TYPES = tuple(t for t in SCALARS.values() if t is not bf16)
ALL = Profile(_TYPES, has_float_bits=True)
# Floats of two implementations are near each other, their bits are not.
NEAR = Profile(_TYPES)
# Operations that every Vulkan device computes bit for bit alike.
EXACT = Profile(
    (i32, u32, f32, u1),
    frozenset(
        [
            "add",
            "sub",
            "mul",
            "neg",
            "abs",
            "sign",
            "min",
            "max",
            "floor",
            "ceil",
            "trunc",
            "select",
        ]
        + ["lt", "le", "gt", "ge", "eq", "ne", "cast", "splat", "pack", "extract", "extract_at"]
        + ["insert", "insert_at", "transpose"]
    ),
)


class Store:
    """An array parameter or a `local`, and the accesses that are permitted now.

    `mode`: "free" (all, in serial code), "read", "own" (the element at the indices `own`) or the
    kind of the permitted atomic. `extents` are the sizes of an array's axes, () for a `local`.
    """

    def __init__(self, value: Value, elem: Number, extents: tuple[int, ...] = ()) -> None:
        self.value, self.elem, self.extents = value, elem, extents
        self.mode = "free"
        self.own: tuple[Value, ...] = ()

    @property
    def is_local(self) -> bool:
        """True for a `local`, of which `value` is the pointer."""
        return not isinstance(self.value.type, Array)


class Case(NamedTuple):
    seed: int
    fn: Func
    values: dict[str, Any]

    def args(self) -> dict[str, Any]:
        """A copy of each argument, as a NumPy array."""
        return {name: np.array(v) for name, v in self.values.items()}


def generate(seed: int, profile: Profile = ALL, size: int = 16) -> Case:
    """The program of this seed; `size` limits the number of statements at its top level."""
    return Generator(seed, profile).program(size)


class Generator:
    """Builds one program. `scope` holds the visible values by type, `places` the known pointers."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.seed, self.rng, self.profile = seed, random.Random(seed), profile
        self.data, self.shapes = np.random.default_rng(seed), random.Random(f"shapes {seed}")
        self.b = Builder()
        self.scope: dict[Type, list[Value]] = {}
        self.places: list[tuple[Value, Store]] = []
        self.stores: list[Store] = []
        self.bounded: list[tuple[Value, int]] = []  # i32 values from 0 to below a number
        self.unused: dict[Value, None] = {}  # in order
        self.iteration: Value | None = None  # the index of the parallel loop around
        self.params: list[Param] = []
        self.values: dict[str, Any] = {}
        self.depth = 0
        self.types = self.choose_types()

    def choose_types(self) -> list[Number]:
        """The number types of this program: i32, f32, u1, two other scalars, and up to three
        tensors."""
        scalars = [i32, f32, u1, *self.rng.sample(self.profile.scalars, 2)]
        tensors = [
            Tensor.of(self.rng.choice(scalars), self.rng.choice(SHAPES))
            for _ in range(self.rng.randint(0, 3))
        ]
        return list(dict.fromkeys([*scalars, *tensors]))

    # --- values

    def emit(self, kind: str, *args: Value, attr: Any = None, type: Type | None = None) -> Value:
        """Emit an op. Random statements do not use its result unless it is passed to `note`."""
        return self.b.emit(kind, *args, attr=attr, type=type)

    def note(self, v: Value) -> Value:
        """Make `v` visible to later statements; returns it."""
        self.unused[v] = None
        self.scope.setdefault(v.type, []).append(v)
        return v

    def value(self, t: Number) -> Value:
        """A visible value of type t, preferably an unused or recent one; sometimes a constant."""
        pool = self.scope.get(t)
        if not pool or self.rng.random() < 0.1:
            return self.constant(t)
        unused = [v for v in pool[-20:] if v in self.unused]
        if unused and self.rng.random() < 0.6:
            pool = unused
        v = pool[-1 - min(int(self.rng.expovariate(0.3)), len(pool) - 1)]
        self.unused.pop(v, None)
        return v

    def constant(self, t: Number) -> Value:
        """A random constant; a tensor often has equal components."""
        if isinstance(t, Scalar) or self.rng.random() < 0.4:
            return self.b.const(guards.random_number(self.rng, scalar_of(t)), t)
        numbers = [guards.random_number(self.rng, t.elem) for _ in range(t.size)]
        return self.b.const(np.array(numbers, t.elem.dtype).reshape(t.shape), t)

    def number(self, n: float, t: Type) -> Value:
        """The constant n, in every component of a tensor."""
        return self.b.const(n, with_shape(scalar_of(t), shape_of(t)))

    @contextmanager
    def region(self, *params: Param) -> Iterator[Region]:
        """Open a region; its values and stores are not visible after it."""
        kept = {t: len(pool) for t, pool in self.scope.items()}
        counts = len(self.places), len(self.bounded), len(self.stores)
        unused = dict(self.unused)
        self.depth += 1
        with self.b.region(*params) as region:
            for p in params:
                self.note(p)
            yield region
        self.depth -= 1
        self.unused = {v: None for v in unused if v in self.unused}
        for t, pool in self.scope.items():
            del pool[kept.get(t, 0) :]
        for pool, count in zip((self.places, self.bounded, self.stores), counts):
            del pool[count:]

    # --- statements

    def statements(self, count: int) -> None:
        """Emit `count` random statements; store some of the new values that nothing uses."""
        outside = dict(self.unused)
        for _ in range(count):
            self.statement()
        for v in [v for v in self.unused if v not in outside and isinstance(v, Op | Result)]:
            if self.rng.random() < 0.4:
                self.keep(v)

    def keep(self, v: Value) -> None:
        """Store v into a new array parameter: a single element, or one per parallel iteration."""
        del self.unused[v]
        indices = [self.iteration] if self.iteration is not None else []
        t, extents = Array.of(v.type, len(indices)), (9,) * len(indices)
        zeros = np.zeros(extents + shape_of(v.type), scalar_of(v.type).dtype)
        out = self.add_param(t, f"kept{len(self.params)}", zeros)
        self.emit("store", self.emit("elem", out, *indices), v)

    def statement(self) -> None:
        kinds = [(12, self.compute), (5, self.access), (1, self.make_local)]
        if self.depth < MOST_DEPTH:
            kinds += [(1, self.branch), (1, self.count), (1, self.repeat)]
        weights, makers = zip(*kinds)
        self.rng.choices(makers, weights)[0]()

    def compute(self) -> None:
        """Emit a random pure op on visible values; nothing if 20 attempts find no fitting op."""
        for _ in range(20):
            kind = self.rng.choice(COMPUTED)
            made = SPECIAL[kind](self) if kind in SPECIAL else self.by_signature(kind)
            if made is not None:
                self.note(made)
                return

    def by_signature(self, kind: str) -> Value | None:
        """Emit op `kind` with guarded arguments of one type; None if no type fits."""
        count = len(OpSignature(TABLE[kind].sig).args)
        fitting = [t for t in self.types if self.allows(kind, t) and _infers(kind, (t,) * count)]
        if not fitting:
            return None
        t = self.rng.choice(fitting)
        args = guards.guard(self, kind, t, [self.value(t) for _ in range(count)])
        return self.tame(kind, self.emit(kind, *args))

    def allows(self, kind: str, t: Type) -> bool:
        """True if the profile permits op `kind` on type t."""
        rows = self.profile.float_rows
        return rows is None or scalar_of(t).kind != "f" or kind in rows

    def tame(self, kind: str, v: Value) -> Value:
        """`v`, or `v` clamped if it is a float and op `kind` may make large numbers.

        Clamps always for a profile with `float_rows`, else at random.
        """
        is_float = scalar_of(v.type).kind == "f"
        if is_float and kind in guards.GROWING:
            if self.profile.float_rows is not None or self.rng.random() < 0.5:
                return guards.clamp(self, v)
        return v

    def branch(self) -> None:
        types = self.rng.choices(self.types, k=self.rng.randint(0, 2))
        regions = []
        cond = self.value(u1)
        for _ in range(2):
            with self.region() as region:
                self.statements(self.rng.randint(0, 4))
                self.emit("yield", *[self.value(t) for t in types])
            regions.append(region)
        for v in self.b.if_(cond, *regions).results:
            self.note(v)

    def count(self) -> None:
        """A `for` of at most four iterations, with up to three carried values."""
        most = self.rng.randint(0, 4)
        begin, end = self.b.const(0, i32), self.b.const(most, i32)
        if self.rng.random() < 0.4:
            end = guards.limit(self, self.value(i32), 0, most)
        if self.rng.random() < 0.3:
            offset = self.value(i32) if self.rng.random() < 0.3 else self.b.const(-2, i32)
            offset = guards.limit(self, offset, -9, 9)
            begin, end = self.emit("add", begin, offset), self.emit("add", end, offset)
        first = [self.value(t) for t in self.rng.choices(self.types, k=self.rng.randint(0, 3))]
        params = [Param(v.type) for v in first]
        i = Param(i32, "i")
        with self.region(i, *params) as body:
            if begin.kind == "const":
                self.bounded.append((i, max(most, 1)))
            self.statements(self.rng.randint(2, 6))
            self.emit("yield", *[self.bound(self.value(v.type)) for v in first])
        for v in self.b.for_(begin, end, first, body).results:
            self.note(v)

    def bound(self, v: Value) -> Value:
        """`v`, clamped if it is a float."""
        return guards.clamp(self, v) if scalar_of(v.type).kind == "f" else v

    def repeat(self) -> None:
        """A `while` of at most four iterations, perhaps with a further random condition."""
        most = self.b.const(self.rng.randint(0, 4), i32)
        types = [i32, *self.rng.choices(self.types, k=self.rng.randint(0, 2))]
        first = [self.b.const(0, i32), *[self.value(t) for t in types[1:]]]
        params = [Param(t) for t in types]
        with self.region(*params) as cond:
            self.statements(self.rng.randint(0, 2))
            go = self.emit("lt", params[0], most)
            if self.rng.random() < 0.5:
                go = self.emit("and", go, self.value(u1))
            self.emit("yield", go)
        params = [Param(t) for t in types]
        with self.region(*params) as body:
            self.statements(self.rng.randint(1, 4))
            step = self.emit("add", params[0], self.b.const(1, i32))
            self.emit("yield", step, *[self.bound(self.value(t)) for t in types[1:]])
        for v in self.b.while_(first, cond, body).results:
            self.note(v)

    # --- memory

    def make_local(self) -> None:
        t = self.rng.choice(self.types)
        store = Store(self.emit("local", self.value(t)), t)
        self.stores.append(store)
        self.places.append((store.value, store))

    def access(self) -> None:
        """A load, store or atomic that the store's mode permits; nothing if there is no store."""
        if not self.stores:
            return
        if self.places and self.rng.random() < 0.5:
            pointer, store = self.rng.choice(self.places)
        else:
            store = self.rng.choice(self.stores)
            pointer = self.point(store)
        elem = pointer.type.elem
        if store.mode in ("read", "free", "own") and self.rng.random() < 0.5:
            self.note(self.emit("load", pointer))
        elif store.mode in ("free", "own"):
            self.write(pointer, elem)
        elif store.mode != "read":
            self.emit(store.mode, pointer, guards.exact_operand(self, store.mode, elem))

    def write(self, pointer: Value, elem: Number) -> None:
        """A store, or an atomic whose old value becomes visible."""
        kind = guards.random_atomic(self.rng, elem)
        if kind is None or self.rng.random() < 0.7:
            self.emit("store", pointer, self.value(elem))
        else:
            self.note(self.emit(kind, pointer, guards.exact_operand(self, kind, elem)))

    def point(self, store: Store) -> Value:
        """A new pointer to an element, or to a component of one, that the store's mode permits."""
        if store.is_local:
            return store.value
        indices = store.own if store.mode == "own" else self.indices(store)
        pointer = self.emit("elem", store.value, *indices)
        elem = store.elem
        if isinstance(elem, Tensor) and self.rng.random() < 0.4:
            if self.rng.random() < 0.6:
                pointer = self.emit("member", pointer, attr=self.rng.randrange(elem.size))
            else:
                k = guards.limit(self, self.value(i32), 0, elem.size - 1)
                pointer = self.emit("member_at", pointer, k)
        self.places.append((pointer, store))
        return pointer

    def indices(self, store: Store) -> tuple[Value, ...]:
        """A random index per axis, in bounds."""
        origin = _origin(store.value.type)
        return tuple(
            self.shift(self.index(store, axis, extent), first)
            for axis, (extent, first) in enumerate(zip(store.extents, origin, strict=True))
        )

    def shift(self, v: Value, first: int) -> Value:
        """`v + first`; `v` itself for an origin of 0."""
        return self.emit("add", v, self.b.const(first, i32)) if first else v

    def index(self, store: Store, axis: int, extent: int) -> Value:
        """An i32 value from 0 to `extent - 1`."""
        known = [v for v, limit in self.bounded if limit <= extent]
        way = self.rng.randrange(4)
        if known and way < 2:
            return self.rng.choice(known)
        if way == 2:
            return self.b.const(self.rng.randrange(extent), i32)
        if way == 3:
            return guards.limit(self, self.value(i32), 0, extent - 1)
        size = self.b.const(extent, i32)
        if self.rng.random() < 0.5:
            size = self.emit("shape", store.value, attr=axis)
        return self.emit("mod", self.value(i32), size)

    # --- whole programs

    def program(self, size: int) -> Case:
        """Parameters, one to three parallel loops between statements, and stores of results."""
        for k, t in enumerate(self.types):
            if isinstance(t, Scalar) or self.rng.random() < 0.5:
                self.add_param(t, f"s{k}", guards.random_numbers(self.data, t, ()))
        for k in range(self.rng.randint(1, 3)):
            self.add_array(f"x{k}")
        outs = [self.add_param(Array.of(t, 0), f"out{k}") for k, t in enumerate(self.types)]
        with self.region() as body:
            for _ in range(self.rng.randint(1, 3)):
                self.statements(self.rng.randint(0, size // 2))
                self.parallel()
            self.statements(self.rng.randint(0, size // 2))
            for out, t in zip(outs, self.types):
                self.emit("store", self.emit("elem", out), self.value(t))
            self.emit("yield")
        return Case(self.seed, Func(f"fuzz_{self.seed}", tuple(self.params), body), self.values)

    def add_param(self, t: Type, name: str, value: Any = None) -> Param:
        """A new parameter; `value` is its argument (default: zeros for an array of no axes)."""
        p = Param(t, name)
        self.params.append(p)
        if isinstance(t, Array):
            zeros = np.zeros(shape_of(t.elem), scalar_of(t.elem).dtype)
            self.values[name] = zeros if value is None else value
        else:
            self.values[name] = value
            self.note(p)
        return p

    def add_array(self, name: str) -> None:
        """Add an array of one or two axes, with a dynamic or static shape and any layout."""
        elem = self.rng.choice(self.types)
        ndim = self.rng.choice((1, 1, 2))
        extents = tuple(self.rng.randint(6, 9) if ndim == 1 else n for n in (3, 4)[:ndim])
        t = Array.of(elem, ndim)
        if self.rng.random() < 0.5:
            t = Array.of(elem, ndim, extents, self.layout(elem, extents))
        data = guards.random_numbers(self.data, elem, extents)
        self.stores.append(Store(self.add_param(t, name, data), elem, extents))

    def layout(self, elem: Number, extents: tuple[int, ...]) -> Layout | None:
        """A random layout: None, row-major, or one with distant components or a shifted origin.

        Column-major layouts, blocks and gaps come from `tree_layouts`.
        """
        size = elem.size if isinstance(elem, Tensor) else 1
        near = row_major(extents, size)
        axes = tuple((AxisTerm(1, 0, axis[0].stride // size),) for axis in near.axes)
        apart = near.size // size
        far = Affine(axes, tuple(k * apart for k in range(size)), near.size)
        moved = far._replace(origin=tuple(self.rng.randint(-3, 3) for _ in extents))
        return self.rng.choice((None, near, far, moved, *tree_layouts(size, extents)))

    def parallel(self) -> None:
        """A `parallel` loop, for whose duration every store gets a random mode."""
        end, most = self.parallel_end()
        begin = self.b.const(self.rng.choice((0, 0, 0, 1)), i32)
        for store in self.stores:
            store.mode = self.rng.choice(self.parallel_modes(store))
            if store.mode == "atomic_add" and scalar_of(store.elem).kind == "f":
                self.emit("store", store.value, self.number(2.0, store.elem))
        bounds, axes = self.axes(begin, end, most)
        places, stores = self.places, self.stores
        self.places = [(p, s) for p, s in places if s.mode not in ("own", "free")]
        with self.region(*[i for i, _ in axes]) as body:
            self.bounded += axes
            self.iteration = self.iteration_of(axes)
            for store in self.stores:
                if store.mode == "own":
                    store.own = self.own_indices(store, [i for i, _ in axes])
            self.statements(self.rng.randint(3, 10))
            for store in self.stores:
                if store.mode == "own":
                    place = self.emit("elem", store.value, *store.own)
                    self.emit("store", place, self.value(store.elem))
            self.emit("yield")
        self.iteration = None
        self.b.parallel(bounds, body, self.rng.choice((None, None, None, 4, 32)))
        self.places, self.stores = places, stores
        for store in self.stores:
            store.mode, store.own = "free", ()

    def parallel_end(self) -> tuple[Value, int]:
        """The end of a parallel loop, and an upper limit of it."""
        most = MOST_ITERATIONS
        arrays = [s for s in self.stores if len(s.extents) == 1]
        smallest = min(arrays, key=lambda s: s.extents[0], default=None)
        way = self.rng.randrange(4)
        if way == 0 and smallest is not None and all(len(s.extents) < 2 for s in self.stores):
            return self.emit("shape", smallest.value, attr=0), smallest.extents[0]
        if way == 1:
            return guards.limit(self, self.value(i32), 0, most), most
        return self.b.const(self.rng.randint(0, most), i32), most

    def parallel_modes(self, store: Store) -> list[str]:
        """The modes that a store may have in a parallel loop; repeated ones are likelier."""
        kinds = guards.exact_atomics(store.elem)
        if not store.is_local:
            return ["read", "own", "own", *kinds[:2]]
        is_float = scalar_of(store.elem).kind == "f" and scalar_of(store.elem).bits > 16
        return ["read", *kinds, *(["atomic_add"] * 3 if is_float else [])]

    def axes(
        self, begin: Value, end: Value, most: int
    ) -> tuple[list[Value], list[tuple[Value, int]]]:
        """Bounds of a parallel loop, and its indices with exclusive limits.

        One axis from `begin` to `end`, or two of constant extents with at most six iterations.
        """
        if self.shapes.random() < 0.6:
            return [begin, end], [(Param(i32, "i"), most)]
        extents = self.shapes.choice(((1, 4), (2, 2), (2, 3), (3, 1), (3, 2)))
        bounds = [self.b.const(k, i32) for n in extents for k in (0, n)]
        return bounds, [(Param(i32, name), n) for name, n in zip("ij", extents)]

    def iteration_of(self, axes: Sequence[tuple[Value, int]]) -> Value:
        """The linear number of an iteration: i, or i * n + j."""
        number, _ = axes[0]
        for i, n in axes[1:]:
            number = self.emit("add", self.emit("mul", number, self.b.const(n, i32)), i)
        return number

    def own_indices(self, store: Store, indices: list[Value]) -> tuple[Value, ...]:
        """Indices of the element that the current iteration may access."""
        origin = _origin(store.value.type)
        if len(indices) == 2 and len(store.extents) == 1:
            assert self.iteration is not None
            indices = [self.iteration]
        if len(indices) < len(store.extents):
            i = indices[0]
            width = self.b.const(store.extents[1], i32)
            indices = [self.emit("floordiv", i, width), self.emit("mod", i, width)]
        return tuple(self.shift(v, first) for v, first in zip(indices, origin, strict=True))


def _infers(kind: str, types: tuple[Type, ...]) -> bool:
    try:
        return TABLE[kind].infer(types, None, None) is not None
    except SignatureError:
        return False


def _origin(t: Type) -> tuple[int, ...]:
    assert isinstance(t, Array)
    return t.layout.origin if t.layout is not None and t.layout.origin else (0,) * t.ndim
