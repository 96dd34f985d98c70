"""Random IR programs that compute indices in many ways and access arrays, often out of bounds.

fn = Generator(seed).program()
run(fn, arguments(rng))
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value
from vkchi.types import Affine, Array, AxisTerm, Tensor, f32, i32, i64, row_major, u1, u32

I32_MAX = 2**31 - 1
ARRAYS = {
    "x": Array.of(f32, 1),
    "y": Array.of(f32, 2),
    "z": Array.of(f32, 3),
    "s": Array.of(f32, 1, (5,), row_major((5,), 1)),
    "w": Array.of(f32, 2, (3, 4), row_major((3, 4), 1)),
    "o": Array.of(
        f32, 1, (6,), Affine((( AxisTerm(1, 0, 1),),), (0,), 6, (-2,))
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
    """Builder of one random program; `ints` holds the visible i32 values."""

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
            b.parallel((first, last), inner)
            b.emit("yield")
        return Func("fuzz", tuple(self.params.values()), body)

    # --- statements

    def block(self, depth: int, *new: Value) -> Value:
        """Emit one to four statements and an empty `yield`; an i32 value that was visible among
        them.

        Values that the statements define, and `new`, are no longer visible afterwards.
        """
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
        """An index for an axis: any i32 value, or one limited to the extent, perhaps off by one."""
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
        """A loop over all elements of `y` or `z`, which splits a linear index into one per axis.

        Sometimes the indices are shuffled.
        """
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
        """The begin and end of a loop."""
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


def arguments(rng: np.random.Generator) -> dict[str, Any]:
    """Zero arrays of random extents, and random integers, for a program of Generator."""
    dims = rng.integers(1, 5, 6)
    return {
        "x": np.zeros(dims[:1], np.float32),
        "y": np.zeros(dims[1:3], np.float32),
        "z": np.zeros(dims[3:], np.float32),
        "s": np.zeros(5, np.float32),
        "w": np.zeros((3, 4), np.float32),
        "o": np.zeros(6, np.float32),
        "a": rng.integers(-3, 9),
        "c": rng.choice([0, 1, 5, I32_MAX, -I32_MAX - 1]),
    }
