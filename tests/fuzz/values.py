"""Random kernels that read Python values, and random edits of these values.

    text = write_program(seed)          # source of a module: values, `Solver.run`, `make`
    world = World(load(path, r), r); world.edit(); world.check()

`check` compares the kernel with its function as plain Python, on the present values. Numbers are
small multiples of 0.25, so sums are exact in f32.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib.util
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vkchi as ti

NUMBERS: list[Any] = [0, 1, 2, 3, -1, -4, 7, 0.5, 2.0, -0.25, 1.0, True, False]
READS = """
G0
G1
CONFIG.n
CONFIG.inner.k
LISTS[0]
LISTS[2][1]
LISTS[-1]
TABLE['a']
TABLE['n'].k
TABLE[3]
TABLE[Key.B]
self.a
self.grid.n
self.items[1].c
self.pick(2)
self.twice
self.rate(3)
local
f(2)
function(2)
shadowed(G1)
rate()
sum(LISTS[2])
max(LISTS[2])
len(LISTS[2])
VECTOR.x
VECTOR[1]
SMALL[1]
Kind.A.value
len(list(Kind))
c.n
c.inner.k
by(1)
default()
(1 if isinstance(G0, float) else 2)
(1 if isinstance(c.n, bool) else 2)
(3 if CONFIG.mesh is None else 4)
(5 if 2 in SET else 6)
(7 if CONFIG.inner is TABLE['n'] else 8)
(9 if LISTS[2] else 10)
[x * 2 for x in LISTS[2]][0]
Settings.level
BOX.total()
BOX.limit
NAMED.p
NAMED[1]
""".strip().splitlines()
LOOPS = """
for x in ti.static(LISTS[2]):~s += x
for o in ti.static(self.items):~s += o.c * 2
for m in ti.static(Kind):~s += m.value
for _, x in ti.static(NUMS.items()):~s += x
for x in ti.static(NUMS.values()):~s += x * 3
for k, x in ti.static(enumerate(LISTS[2])):~s += x * k
for k in ti.static(range(len(LISTS[2]))):~s += LISTS[2][k] * 2
for x, y in ti.static(zip(LISTS[2], PAIR)):~s += x * y
""".strip().splitlines()
HEAD = """\
import vkchi as ti
from tests.fuzz.values import *

@ti.pyfunc
def first(x):
    return x + G1

@ti.pyfunc
def second(x):
    return x * 2

@ti.pyfunc
def both(x, y):
    return x * 2 + y

@ti.pyfunc
def other(x, y):
    return x - y

@ti.pyfunc
def default(x=DEFAULTS):
    return x[0] + x[1]

@ti.pyfunc
def shadowed(x):
    return x + CONFIG.n

def rate():
    return CONFIG.n * 2 + helped(LISTS)

def helped(lists):
    return len(lists[2]) + TABLE['n'].k

f, function = first, second
by = functools.partial(both, 2)

def make():
    local = 3

    @ti.data_oriented
    class Solver:
        def __init__(self):
            self.a, self.grid = 1, Object(n=2)
            self.items = [Object(c=1), Object(c=2)]

        @ti.pyfunc
        def pick(self, x):
            return x * self.a

        @property
        def twice(self):
            return self.a * 2

        def rate(self, by):
            return self.grid.n * by

        @ti.kernel
        def run(self, c: ti.template()) -> ti.f32:
            s = 0.0
"""
TAIL = """\
            return s

    def put(value):
        nonlocal local
        local = value

    return Solver, put
"""


class Object(types.SimpleNamespace):
    """An object with arbitrary attributes."""


class Key(enum.Enum):
    A = 1
    B = 2


class Box:
    """An object with a method and a property that kernels call."""

    def __init__(self, numbers: list[Any]) -> None:
        self.numbers, self.extra = numbers, {"more": 1}

    def total(self) -> Any:
        return sum(self.numbers) + self.extra["more"]

    @property
    def limit(self) -> Any:
        return self.extra["more"] * 3


@dataclasses.dataclass(frozen=True)
class Constants:
    n: Any
    inner: Any


class Settings:
    level = 2


def write_program(seed: int) -> str:
    """Source of a module whose kernel reads random Python values."""
    r = random.Random(seed)
    lines = [f"s += {read} * {r.randrange(1, 9)}" for read in r.sample(READS, r.randrange(2, 9))]
    lines += r.sample(LOOPS, r.randrange(0, 3))
    r.shuffle(lines)
    text = "".join(f"            {x}\n".replace("~", "\n                ") for x in lines)
    return f"{HEAD}{text}{TAIL}"


def load(path: Path, r: random.Random) -> Any:
    """The module at `path`, executed with random globals from `draw_values`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(draw_values(r))
    spec.loader.exec_module(module)
    return module


def draw_values(r: random.Random) -> dict[str, Any]:
    """Random first values of the globals that kernels read."""
    number = functools.partial(r.choice, NUMBERS)
    inner = Object(k=number())
    return {
        "G0": number(), "G1": number(), "DEFAULTS": [number(), number()],
        "CONFIG": Object(n=number(), inner=inner, mesh=r.choice([None, Object()])),
        "LISTS": [number(), number(), [number() for _ in range(r.randrange(2, 4))], number()],
        "TABLE": {"a": number(), "n": Object(k=number()), 3: number(), Key.B: number()},
        "NUMS": {k: number() for k in "xyz"[: r.randrange(1, 4)]}, "PAIR": (number(), number()),
        "VECTOR": ti.Vector([number() * 1.0, number() * 1.0]), "SMALL": np.array([1.0, 2.0, 3.0]),
        "SET": {1, 2}, "Kind": draw_enum(r), "BOX": Box([number(), number()]),
        "NAMED": draw_named(r), "Settings": type("Settings", (), {"level": number()}),
    }  # fmt: skip


Named = collections.namedtuple("Named", "p q")


def draw_named(r: random.Random) -> Any:
    return Named(r.choice(NUMBERS), r.choice(NUMBERS))


def draw_enum(r: random.Random) -> Any:
    numbers = [x for x in NUMBERS if type(x) is int]
    members = {name: x for name, x in zip("ABC", r.sample(numbers, r.randrange(1, 4)))}
    return enum.Enum("Kind", members)


class World:
    """A module, two objects of its `Solver`, a template argument, and a log of edits."""

    def __init__(self, module: Any, r: random.Random) -> None:
        self.m, self.r = module, r
        self.cls, self.put = module.make()
        self.solvers = [self.cls(), self.cls()]
        self.solver = self.solvers[0]
        self.template = Constants(self.number(), Object(k=self.number()))
        self.edits: list[Callable[[], Any]] = [
            getattr(self, name) for name in dir(World) if name.startswith("edit_")
        ]
        self.log: list[str] = []

    def number(self) -> Any:
        return self.r.choice(NUMBERS)

    def edit(self) -> None:
        """Make one random edit and log its name."""
        edit = self.r.choice(self.edits)
        self.log.append(edit.__name__)
        edit()

    def check(self) -> None:
        """Assert that one to three calls of the kernel give the result of plain Python.

        Only logs the error if plain Python raises one.
        """
        try:
            expected = float(self.cls.run.__vkchi_func__(self.solver, self.template))
        except Exception as error:
            self.log.append(f"not valid: {error}")
            return
        for _ in range(self.r.randrange(1, 4)):
            found = self.solver.run(self.template)
            assert found == expected, (found, expected, self.log)

    # --- edits -------------------------------------------------------------------------------

    def edit_global(self) -> None:
        setattr(self.m, self.r.choice(["G0", "G1"]), self.number())

    def edit_attribute(self) -> None:
        self.m.CONFIG.n = self.number()

    def edit_unread(self) -> None:
        self.m.CONFIG.other, self.solver.other = self.number(), self.number()

    def edit_nested(self) -> None:
        self.m.CONFIG.inner.k = self.number()

    def edit_inner_object(self) -> None:
        self.m.CONFIG.inner = self.r.choice([Object(k=self.number()), self.m.TABLE["n"]])

    def edit_config(self) -> None:
        self.m.CONFIG = Object(n=self.number(), inner=self.m.CONFIG.inner, mesh=None)

    def edit_mesh(self) -> None:
        self.m.CONFIG.mesh = self.r.choice([None, Object()])

    def edit_item(self) -> None:
        self.m.LISTS[self.r.choice([0, 3])] = self.number()

    def edit_inner_item(self) -> None:
        self.m.LISTS[2][self.r.randrange(len(self.m.LISTS[2]))] = self.number()

    def edit_length(self) -> None:
        numbers = self.m.LISTS[2]
        if len(numbers) > 2 and self.r.random() < 0.5:
            numbers.pop()
        else:
            numbers.append(self.number())

    def edit_list(self) -> None:
        self.m.LISTS[2] = list(self.m.LISTS[2])

    def edit_table(self) -> None:
        self.m.TABLE[self.r.choice(["a", 3, Key.B, "unread"])] = self.number()

    def edit_table_object(self) -> None:
        if self.r.random() < 0.5:
            self.m.TABLE["n"].k = self.number()
        else:
            self.m.TABLE["n"] = Object(k=self.number())

    def edit_numbers(self) -> None:
        self.m.NUMS[self.r.choice("xyzw")] = self.number()

    def edit_pair(self) -> None:
        self.m.PAIR = (self.number(), self.number())

    def edit_vector(self) -> None:
        self.m.VECTOR[self.r.randrange(2)] = self.number() * 1.0

    def edit_new_vector(self) -> None:
        self.m.VECTOR = ti.Vector([self.number() * 1.0, self.number() * 1.0])

    def edit_small(self) -> None:
        self.m.SMALL[self.r.randrange(3)] = self.number()

    def edit_set(self) -> None:
        self.m.SET.symmetric_difference_update({self.r.choice([1, 2])})

    def edit_enum(self) -> None:
        self.m.Kind = draw_enum(self.r)

    def edit_self(self) -> None:
        self.solver.a = self.number()

    def edit_grid(self) -> None:
        if self.r.random() < 0.5:
            self.solver.grid.n = self.number()
        else:
            self.solver.grid = Object(n=self.number())

    def edit_items(self) -> None:
        self.r.choice(self.solver.items).c = self.number()

    def edit_item_objects(self) -> None:
        items = self.solver.items
        if len(items) > 2:
            items.pop()
        else:
            items.append(Object(c=self.number()))
        self.r.shuffle(items)

    def edit_solver(self) -> None:
        self.solver = self.r.choice(self.solvers)

    def edit_template(self) -> None:
        self.template = Constants(self.number(), self.template.inner)

    def edit_template_part(self) -> None:
        self.template.inner.k = self.number()

    def edit_functions(self) -> None:
        self.m.f, self.m.function = self.r.choices([self.m.first, self.m.second], k=2)

    def edit_closure(self) -> None:
        self.put(self.number())

    def edit_default(self) -> None:
        self.m.default.__vkchi_func__.__defaults__[0][self.r.randrange(2)] = self.number()

    def edit_partial(self) -> None:
        self.m.by = functools.partial(self.r.choice([self.m.both, self.m.other]), self.number())
        if self.r.random() < 0.3:
            self.m.by = functools.partial(self.m.both, y=self.number())

    def edit_method(self) -> None:
        by = self.r.choice([1, 2, 3])
        other = METHODS[by]
        self.cls.pick = ti.pyfunc(other)

    def edit_own_method(self) -> None:
        if "pick" in vars(self.solver):
            del self.solver.pick
        else:
            self.solver.pick = self.r.choice([self.m.first, self.m.second])

    def edit_class_attribute(self) -> None:
        self.m.Settings.level = self.number()

    def edit_box(self) -> None:
        if self.r.random() < 0.5:
            self.m.BOX.numbers[0] = self.number()
        else:
            self.m.BOX.extra["more"] = self.number()

    def edit_named(self) -> None:
        self.m.NAMED = draw_named(self.r)


def method_1(self: Any, x: Any) -> Any:
    return x + 1


def method_2(self: Any, x: Any) -> Any:
    return x * self.grid.n


def method_3(self: Any, x: Any) -> Any:
    return x - self.a


METHODS = {1: method_1, 2: method_2, 3: method_3}
