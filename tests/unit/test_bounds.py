"""Pass `bounds`: what it proves, and random programs in which whatever it proves must be true."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.interp import run
from vkchi.ir.rebuild import rebuild
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.passes.bounds import bounds
from vkchi.types import Array, AxisTerm, Layout, Tensor, f32, i32, i64, row_major, u1, u32

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "60"))
I32_MAX = 2**31 - 1


def marks(text: str) -> list[bool]:
    """Whether each access of the program, in order, is proved inside."""
    fn = parse_func(text)
    verify(fn)
    new = bounds(fn)
    verify(new)
    return [op.attr == "inside" for op in walk(new.body) if op.kind == "elem"]


def one_access(index: str, *, array: str = "f32[?]", end: str = "%n", setup: str = "") -> bool:
    """Whether `elem %x, %k` is proved in a loop over %i from 0 to `end`; `index` computes %k."""
    return marks(f"""
func @f(%x: array<{array}>, %y: array<f32[?]>, %a: i32) {{
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %c2 = const 2 : i32
  %c10 = const 10 : i32
  %big = const 2147483647 : i32
  %n = shape %x [0] : i32
  %m = shape %y [0] : i32
  %n1 = sub %n, %c1 : i32
  {setup}
  parallel %c0, {end} {{
    ^(%i: i32)
    {index}
    %p = elem %x, %k : ptr<f32 global>
    yield
  }}
  yield
}}
""")[0]


PROVED = {
    "the index": "%k = add %i, %c0 : i32",
    "backwards": "%k = sub %n1, %i : i32",
    "clamped": "%d = sub %i, %c1 : i32\n %k = max %d, %c0 : i32",
    "clamped above": "%h = shr %i, %c1 : i32\n %d = add %h, %c10 : i32\n %k = min %d, %n1 : i32",
    "wrapped around": "%d = sub %i, %c1 : i32\n %k = mod %d, %n : i32",
    "half": "%k = shr %i, %c1 : i32",
    "through i64": "%w = cast %i : i64\n %k = cast %w : i32",
    "masked": "%k = and %i, %a : i32",
    "selected": "%c = lt %i, %n1 : u1\n %d = add %i, %c1 : i32\n %k = select %c, %d, %c0 : i32",
}
OPEN = {
    "one beyond": "%k = add %i, %c1 : i32",
    "one below": "%k = sub %i, %c1 : i32",
    "an argument": "%k = add %a, %c0 : i32",
    "twice": "%k = mul %i, %c2 : i32",
    "remainder": "%d = sub %i, %c1 : i32\n %k = rem %d, %n : i32",
    "clamped too far": "%d = add %i, %c10 : i32\n %k = min %d, %n : i32",
    "clamped, may overflow": "%d = add %i, %c10 : i32\n %k = min %d, %n1 : i32",
    "overflow": "%d = add %i, %big : i32\n %k = sub %d, %big : i32",
}


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    assert one_access(PROVED[name])


@pytest.mark.parametrize("name", OPEN)
def test_open(name: str) -> None:
    assert not one_access(OPEN[name])


def test_static_extents() -> None:
    half = "%k = floordiv %i, %c2 : i32"
    assert one_access(half, array="f32[5]", end="%c10")
    assert not one_access(half, array="f32[4]", end="%c10")
    assert not one_access("%k = add %i, %c0 : i32", array="f32[10]", end="%a")
    capped = "%e = min %a, %c10 : i32"
    assert one_access("%k = add %i, %c0 : i32", array="f32[10]", end="%e", setup=capped)


def test_flattened_axes() -> None:
    """A loop over all elements of an array of three axes, its index taken apart again."""
    text = """
func @f(%x: array<f32[???]>, %y: array<f32[???]>) {
  %c0 = const 0 : i32
  %d0 = shape %x [0] : i32
  %d1 = shape %x [1] : i32
  %d2 = shape %x [2] : i32
  %d12 = mul %d1, %d2 : i32
  %all = mul %d0, %d12 : i32
  parallel %c0, %all {
    ^(%t: i32)
    %i = floordiv %t, %d12 : i32
    %r = mod %t, %d12 : i32
    %j = floordiv %r, %d2 : i32
    %k = mod %t, %d2 : i32
    %p = elem %x, %i, %j, %k : ptr<f32 global>
    %ij = floordiv %t, %d2 : i32
    %j2 = mod %ij, %d1 : i32
    %i2 = floordiv %ij, %d1 : i32
    %p2 = elem %x, %i2, %j2, %k : ptr<f32 global>
    %swapped = elem %x, %j, %i, %k : ptr<f32 global>
    %other = elem %y, %i, %j, %k : ptr<f32 global>
    yield
  }
  yield
}
"""
    assert marks(text) == [True, True, False, False]


def test_conditions() -> None:
    text = """
func @f(%x: array<f32[??]>, %a: i32, %b: i32) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %n = shape %x [0] : i32
  %m = shape %x [1] : i32
  %n1 = sub %n, %c1 : i32
  %low = ge %a, %c0 : u1
  %v = if %low : u1 {
    %high = lt %a, %n1 : u1
    yield %high
  } {
    %no = const false : u1
    yield %no
  }
  %low_b = ge %b, %c0 : u1
  %high_b = lt %b, %m : u1
  %w = and %low_b, %high_b : u1
  %vw = and %v, %w : u1
  if %vw {
    %a1 = add %a, %c1 : i32
    %p = elem %x, %a1, %b : ptr<f32 global>
    yield
  } {
    %q = elem %x, %a, %b : ptr<f32 global>
    yield
  }
  %not = not %w : u1
  if %not {
    yield
  } {
    %r = elem %x, %c0, %b : ptr<f32 global>
    yield
  }
  yield
}
"""
    assert marks(text) == [True, False, False]  # %r: the first axis may have no element


def test_counting_loop() -> None:
    text = """
func @f(%x: array<f32[10]>) {
  %c0 = const 0 : i32
  %c10 = const 10 : i32
  %end = while %c0 : i32 {
    ^(%k: i32)
    %more = lt %k, %c10 : u1
    yield %more
  } {
    ^(%j: i32)
    %p = elem %x, %j : ptr<f32 global>
    %c1 = const 1 : i32
    %next = add %j, %c1 : i32
    yield %next
  }
  %q = elem %x, %end : ptr<f32 global>
  yield
}
"""
    assert marks(text) == [True, False]
    assert marks(text.replace("const 1 ", "const -1 ")) == [False, False]


# --- random programs -----------------------------------------------------------------------------

ARRAYS = {
    "x": Array.of(f32, 1),
    "y": Array.of(f32, 2),
    "z": Array.of(f32, 3),
    "s": Array.of(f32, 1, (5,), row_major((5,), 1)),
    "w": Array.of(f32, 2, (3, 4), row_major((3, 4), 1)),
    "o": Array.of(
        f32, 1, (6,), Layout((( AxisTerm(1, 0, 1),),), (0,), 6, (-2,))
    ),
}  # fmt: skip
CONSTANTS = (-2, -1, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 8, 16, I32_MAX, -I32_MAX - 1, 65536)
BINARY = (
    "add add add sub sub sub mul mul floordiv floordiv mod mod min min max max truncdiv rem and or "
    "xor shl shr"
).split()
UNARY = ("neg", "abs", "sign", "not", "popcnt", "clz")
COMPARE = ("lt", "lt", "le", "gt", "ge", "ge", "eq", "ne")


class Generator:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = Builder()
        self.params = {name: Param(t, name) for name, t in ARRAYS.items()}
        self.params |= {name: Param(i32, name) for name in ("a", "c")}
        self.ints: list[Value] = []

    def program(self) -> Func:
        b = self.b
        with b.region() as body:
            self.ints = [self.params["a"], self.params["c"]]
            self.ints += [b.const(k, i32) for k in self.rng.sample(CONSTANTS, 6)]
            self.ints += [b.const(k, i32) for k in (0, 1)]
            for name in "xyz":
                for k in range(ARRAYS[name].ndim):
                    self.ints.append(b.emit("shape", self.params[name], attr=k))
            for _ in range(self.rng.randint(1, 3)):
                self.statement(0)
            i = Param(i32, "i")
            first, last = self.range()
            with b.region(i) as inner:
                self.block(1, i)
            b.parallel(first, last, inner)
            b.emit("yield")
        return Func("fuzz", tuple(self.params.values()), body)

    # --- statements

    def block(self, depth: int, *new: Value) -> Value:
        """Statements and a yield of nothing; forgets what they made."""
        count = len(self.ints)
        self.ints += [v for v in new if v.type is i32] * 3
        for _ in range(self.rng.randint(1, 4)):
            self.statement(depth)
        chosen = self.pick()
        del self.ints[count:]
        self.b.emit("yield")
        return chosen

    def statement(self, depth: int) -> None:
        choices = ["int"] * 5 + ["access"] * 4 + ["if"] * 2 + ["for", "while", "flat"]
        choice = self.rng.choice(choices if depth < 3 else choices[:9])
        getattr(self, f"make_{choice}")(depth)

    def make_int(self, depth: int) -> None:
        self.ints.append(self.number())

    def make_access(self, depth: int) -> None:
        name = self.rng.choice(list(ARRAYS))
        indices = [self.index(name, k) for k in range(ARRAYS[name].ndim)]
        kind = self.rng.random()
        if kind < 0.15:
            indices = [self.b.emit("cast", v, type=i64) for v in indices]
        elif kind < 0.3:
            indices = [self.b.emit("bitcast", v, type=u32) for v in indices]
        place = self.b.emit("elem", self.params[name], *indices)
        self.b.emit("store", place, self.b.const(1.0, f32))

    def index(self, name: str, axis: int) -> Value:
        """An index: any number, or one made to fit, at times not quite."""
        b, rng, t = self.b, self.rng, ARRAYS[name]
        v = self.pick()
        if rng.random() < 0.5:
            return v
        extent: Value = (
            b.const(t.shape[axis], i32)
            if t.shape
            else b.emit("shape", self.params[name], attr=axis)
        )
        if rng.random() < 0.5:
            return b.emit(rng.choice(("mod", "mod", "rem")), v, extent)
        last = b.emit("sub", extent, b.const(rng.choice((1, 1, 1, 0, 2)), i32))
        low = b.const(rng.choice((0, 0, 0, -1, 1)), i32)
        return b.emit("max", b.emit("min", v, last), low)

    def make_if(self, depth: int) -> None:
        b, condition = self.b, self.condition(3)
        count = len(self.ints)
        yielded = []
        regions = []
        for _ in range(2):
            with b.region() as region:
                yielded.append(self.block(depth + 1))
                region.ops.pop()
                v = self.pick()
                b.emit("yield", v)
            regions.append(region)
        assert count == len(self.ints)
        self.ints += b.if_(condition, *regions).results

    def make_for(self, depth: int) -> None:
        b, i, carried = self.b, Param(i32, "k"), Param(i32, "carried")
        first = self.pick()
        begin, end = self.range()
        with b.region(i, carried) as body:
            count = len(self.ints)
            self.block(depth + 1, i, carried)
            body.ops.pop()
            self.ints += [i, carried, carried]
            v = self.number()
            b.emit("yield", v)
            del self.ints[count:]
        self.ints += b.for_(begin, end, (first,), body).results

    def make_while(self, depth: int) -> None:
        b = self.b
        old, new = ([Param(i32, "n"), Param(i32, "v")] for _ in range(2))
        first = (self.pick(), self.pick())
        count = len(self.ints)
        fuel = b.emit("local", b.const(0, i32))
        with b.region(*old) as cond:
            spent = b.emit("load", fuel)
            self.ints += old
            more = self.condition(2)
            del self.ints[count:]
            b.emit("yield", b.emit("and", b.emit("lt", spent, b.const(6, i32)), more))
        with b.region(*new) as body:
            b.emit("store", fuel, b.emit("add", b.emit("load", fuel), b.const(1, i32)))
            self.block(depth + 1, *new)
            body.ops.pop()
            step = b.emit("add", new[0], b.const(self.rng.choice((1, 1, 1, 2, -1)), i32))
            self.ints += new
            v = self.number()
            del self.ints[count:]
            b.emit("yield", step, v)
        self.ints += b.while_(first, cond, body).results

    def make_flat(self, depth: int) -> None:
        """A loop over all elements of an array, its index taken apart."""
        b, name = self.b, self.rng.choice("yz")
        dims = [b.emit("shape", self.params[name], attr=k) for k in range(ARRAYS[name].ndim)]
        total: Value = dims[-1]
        tails = [total]
        for d in reversed(dims[:-1]):
            total = b.emit("mul", d, total)
            tails.insert(0, total)
        t = Param(i32, "t")
        with b.region(t) as body:
            parts: list[Value] = []
            rest: Value = t
            for tail in tails[1:]:
                parts.append(b.emit("floordiv", rest, tail))
                rest = b.emit("mod", rest, tail)
            parts.append(rest)
            if self.rng.random() < 0.2:
                self.rng.shuffle(parts)
            place = b.emit("elem", self.params[name], *parts)
            b.emit("store", place, b.const(1.0, f32))
            self.block(depth + 1, t, *parts)
        b.for_(self.zero(), total, (), body)

    # --- values

    def zero(self) -> Value:
        return self.b.const(0, i32)

    def pick(self) -> Value:
        if self.rng.random() < 0.6:
            return self.rng.choice(self.ints[-8:])
        return self.rng.choice(self.ints)

    def number(self) -> Value:
        b, rng = self.b, self.rng
        kind = rng.random()
        if kind < 0.1:
            return b.emit(rng.choice(UNARY), self.pick())
        if kind < 0.2:
            return b.emit("select", self.condition(2), self.pick(), self.pick())
        if kind < 0.3:
            v = b.emit("pack", self.pick(), self.pick(), type=Tensor.of(i32, (2,)))
            w = b.emit("splat", self.pick(), type=v.type)
            return b.emit("extract", b.emit(rng.choice(BINARY), v, w), attr=rng.randint(0, 1))
        if kind < 0.35:
            t = rng.choice((u32, i64))
            x, y = (b.emit("cast", self.pick(), type=t) for _ in range(2))
            return b.emit("cast", b.emit(rng.choice(BINARY), x, y), type=i32)
        other = b.const(rng.choice(CONSTANTS), i32) if rng.random() < 0.5 else self.pick()
        return b.emit(rng.choice(BINARY), self.pick(), other)

    def condition(self, depth: int) -> Value:
        b, rng = self.b, self.rng
        if depth == 0 or rng.random() < 0.5:
            t = rng.choice((i32, i32, i32, u32))
            x, y = (
                v if t is i32 else b.emit("cast", v, type=t) for v in (self.pick(), self.pick())
            )
            return b.emit(rng.choice(COMPARE), x, y)
        kind = rng.choice(("and", "and", "or", "not", "chain"))
        if kind == "not":
            return b.emit("not", self.condition(depth - 1))
        if kind != "chain":
            return b.emit(kind, self.condition(depth - 1), self.condition(depth - 1))
        is_and = rng.random() < 0.5
        sides = []
        first = self.condition(depth - 1)
        for lazy in (is_and, not is_and):
            with b.region() as region:
                v = self.condition(depth - 1) if lazy else b.const(not is_and, u1)
                b.emit("yield", v)
            sides.append(region)
        return b.if_(first, *sides).results[0]

    def range(self) -> tuple[Value, Value]:
        """Bounds of a loop of few iterations."""
        b, rng = self.b, self.rng
        begin = self.zero() if rng.random() < 0.6 else self.pick()
        least, most = b.const(-3, i32), b.const(rng.randint(1, 6), i32)
        if begin.type is i32 and not isinstance(begin, Op):
            begin = b.emit("max", begin, least)
        elif isinstance(begin, Op) and begin.kind not in ("const", "shape"):
            begin = b.emit("max", begin, least)
        shapes = [v for v in self.ints if isinstance(v, Op) and v.kind == "shape"]
        if begin.kind == "const" and begin.attr > 1000 if isinstance(begin, Op) else False:
            begin = self.zero()
        if rng.random() < 0.5:
            return begin, rng.choice(shapes)
        return begin, b.emit("min", self.pick(), most)


def with_checks(fn: Func) -> Func:
    """The program with a count of all proved accesses that are outside after all."""
    bad = Param(Array.of(i32, 0, (), row_major((), 1)), "bad")

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> list[Value] | None:
        if op.kind != "elem" or op.attr != "inside":
            return None
        t = op.args[0].type
        assert isinstance(t, Array)
        ok: Value = b.const(True, u1)
        for k, v in enumerate(args[1:]):
            first = t.layout.origin[k] if t.layout and t.layout.origin else 0
            index = b.emit("sub", b.emit("cast", v, type=i64), b.const(first, i64))
            extent = b.const(t.shape[k], i64) if t.shape else b.emit(
                "cast", b.emit("shape", args[0], attr=k), type=i64
            )  # fmt: skip
            ok = b.emit("and", ok, b.emit("ge", index, b.const(0, i64)))
            ok = b.emit("and", ok, b.emit("lt", index, extent))
        wrong = b.emit("cast", b.emit("not", ok), type=i32)
        b.emit("atomic_add", b.emit("elem", bad), wrong)
        return None

    new = rebuild(fn, visit)
    return Func(new.name, (*new.params, bad), new.body)


@pytest.mark.parametrize("chunk", range(5))
def test_what_is_proved_is_true(chunk: int) -> None:
    proved = total = 0
    for seed in range(chunk, PROGRAMS, 5):
        fn = Generator(seed).program()
        verify(fn)
        new = bounds(fn)
        verify(new)
        accesses = [op for op in walk(new.body) if op.kind == "elem"]
        total += len(accesses)
        proved += sum(op.attr == "inside" for op in accesses)
        checked = with_checks(new)
        verify(checked)
        rng = np.random.default_rng(seed)
        for _ in range(2):
            dims = rng.integers(1, 5, 6)
            args = {
                "x": np.zeros(dims[:1], np.float32),
                "y": np.zeros(dims[1:3], np.float32),
                "z": np.zeros(dims[3:], np.float32),
                "s": np.zeros(5, np.float32),
                "w": np.zeros((3, 4), np.float32),
                "o": np.zeros(6, np.float32),
                "a": rng.integers(-3, 9),
                "c": rng.choice([0, 1, 5, I32_MAX, -I32_MAX - 1]),
                "bad": np.zeros((), np.int32),
            }
            assert run(checked, args)["bad"] == 0, f"seed {seed}\n{print_func(new)}"
    assert proved > 0.1 * total, "the generator makes too little that can be proved"
