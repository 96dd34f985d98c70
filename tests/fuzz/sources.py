"""Random typed programs in the kernel language, as Python source.

    batch = write_batch(seed, programs=10)      # text that defines funcs f0 ... f9
    names = define(batch, {"ti": ti, ...})

A program is a `@ti.func` of the iteration i and numbers a0, b0, x0. It uses locals of every type,
branches, loops with early exits, calls by value and by reference, vectors, matrices, structs,
lists, and elements of fields that only iteration i accesses.

Integers wrap. Floats are whole numbers of magnitude at most 2000, whose products are exact, so
every device computes the same bits. Rounding operations come last: `near[k, i] = sqrt(p)`, with its
arguments stored in `first` and `second` for the precision tables.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.fuzz.writer import Frame

ROUNDED = {  # op of the precision tables -> source; p and q are exact and positive
    "sqrt": "ti.sqrt(p)", "rsqrt": "ti.rsqrt(p)", "div": "p / q", "exp2": "ti.math.exp2(p / 256.0)",
    "sin": "ti.sin(p / 1024.0)", "cos": "ti.cos(p / 1024.0)", "log2": "ti.math.log2(p)",
}  # fmt: skip
SCALES = {"exp2": 1 / 256.0, "sin": 1 / 1024.0, "cos": 1 / 1024.0}

# type -> its first values, which every program has as variables
LOCALS = {
    "i": ("a", "b", "n"),
    "u": ("k",),
    "f": ("x", "y"),
    "t": ("t",),
    "V": ("v", "w"),  # vector of 3 f32
    "I": ("g",),  # vector of 2 i32
    "M": ("m",),  # 2 by 2 f32
}
HEAD = """\
    a, b, x = a0, b0, x0
    n, y = a0 - b0, x0 + 1.0
    k = ti.cast(a0, ti.u32)
    t = a0 > b0
    v, w = ti.Vector([x0, 1.0, 2.0]), ti.Vector([3.0, x0, y])
    g = ti.Vector([a0, b0])
    m = ti.Matrix([[x0, 1.0], [y, 2.0]])
    s = Pair(n=a0, x=x0, v=ti.math.vec3(x0, 1.0, 2.0))
    z = [a0, b0, 3]
    old: ti.i32 = x0 * 2.0
"""
FUNCS = """\
@ti.func
def keep(x):
    return ti.max(ti.min(ti.round(x), 2000.0), -2000.0)

@ti.func
def pick(c, p, q):
    if c:
        return p
    return q

@ti.func
def split(p):
    return p // 3, p % 3

@ti.func
def bump(p: ti.template(), by):
    p += by

@ti.func
def find(p: ti.i32, most: ti.i32) -> ti.i32:
    for j in range(most):
        if j * j >= p:
            return j
    return most

@ti.func
def mirror(p, q=1, flip: ti.template() = False):
    r = p
    if ti.static(flip):
        r = -p
    return r * q
"""

# type -> expressions of it; {i} and the like are filled by expressions of that type
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "i": (
        "({i} + {i})",
        "({i} - {i})",
        "({i} * {i})",
        "({i} // {d})",
        "({i} % {d})",
        "(-{i})",
        "(~{i})",
        "({i} & {i})",
        "({i} | {i})",
        "({i} ^ {i})",
        "({i} << {h})",
        "({i} >> {h})",
        "ti.max({i}, {i})",
        "min({i}, {i}, {i})",
        "({i} if {t} else {i})",
        "ti.select({t}, {i}, {i})",
        "pick({t}, {i}, {i})",
        "int({f})",
        "ti.cast({u}, ti.i32)",
        "z[{c3}]",
        "{I}[{c2}]",
        "{I}.y",
        "{I}.sum()",
        "s.n",
        "find({d}, 9)",
        "mirror({i})",
        "mirror({i}, {d}, flip=True)",
        "cells[i, {r4}]",
        "ti.abs({i} % 99)",
        "{I}.dot({I})",
        "({t} + {i})",
        "grid[i, {r2}, {c2}]",
        "{I}[{r2}]",
        "split({i})[1]",
        "ti.bit_cast({u}, ti.i32)",
        "({i} and {i})",
        "({i} or {i})",
    ),
    "u": (
        "({u} + {u})",
        "({u} * {u})",
        "({u} // ti.u32({d}))",
        "({u} >> ti.u32({h}))",
        "ti.cast({i}, ti.u32)",
        "ti.max({u}, {u})",
        "({u} ^ {u})",
        "ti.u32({c3})",
    ),
    "f": (
        "keep({f} + {f})",
        "keep({f} - {f})",
        "keep({f} * {f})",
        "(-{f})",
        "ti.abs({f})",
        "ti.floor({f} * 0.5)",
        "ti.max({f}, {f})",
        "({f} if {t} else {f})",
        "pick({t}, {f}, {f})",
        "float({i} % 64)",
        "{V}[{c3}]",
        "{V}.z",
        "{V}[{r3}]",
        "keep({V}.sum())",
        "keep({V}.dot({V}))",
        "{M}[{c2}, {c2}]",
        "{M}[{r2}, {c2}]",
        "keep({M}.trace())",
        "keep({M}.determinant())",
        "s.x",
        "s.v[{c3}]",
        "keep(s.total())",
        "points[i].y",
        "ti.math.sign({f})",
        "points[i][{r3}]",
        "ti.math.clamp({f}, -9.0, 9.0)",
        "keep(ti.math.dot({V}, s.v))",
    ),
    "t": (
        "({i} < {i})",
        "({f} >= {f})",
        "({i} == {i})",
        "(not {t})",
        "({t} and {t})",
        "({t} or {t})",
        "({i} < {i} <= {i})",
        "({V} > {V}).any()",
        "({u} != {u})",
        "all({V} == {V})",
    ),
    "V": (
        "keep({V} + {V})",
        "keep({V} * {f})",
        "keep({V} - {f})",
        "(-{V})",
        "{V}.zyx",
        "({V} if {t} else {V})",
        "ti.Vector([{f}, {f}, {f}])",
        "ti.math.vec3({f}, {V}.xy)",
        "ti.max({V}, {V})",
        "s.v",
        "points[i]",
        "keep({V}.cross({V}))",
        "ti.select({t}, {V}, {V})",
        "pick({t}, {V}, {V})",
        "keep(abs({V}))",
    ),
    "I": (
        "({I} + {I})",
        "({I} * {i})",
        "{I}.yx",
        "ti.Vector([{i}, {i}])",
        "({I} % {d})",
        "ti.Vector([q * {i} for q in range(2)])",
        "ti.cast({V}.xz, ti.i32)",
        "({I} & {I})",
    ),
    "M": (
        "keep({M} + {M})",
        "keep({M} @ {M})",
        "{M}.transpose()",
        "keep({M} * {f})",
        "ti.Matrix([[{f}, {f}], [{f}, {f}]])",
        "pick({t}, {M}, {M})",
        "keep({V}.xy.outer_product({V}.zy))",
    ),
}
# assignable expressions, by type
TARGETS: dict[str, tuple[str, ...]] = {
    "i": (
        "a",
        "b",
        "n",
        "z[{c3}]",
        "g[{c2}]",
        "g.x",
        "s.n",
        "cells[i, {r4}]",
        "grid[i, {r2}, {c2}]",
        "g[{r2}]",
    ),
    "u": ("k",),
    "f": (
        "x",
        "y",
        "v[{c3}]",
        "v.y",
        "w[{r3}]",
        "m[{c2}, {c2}]",
        "m[{r2}, {c2}]",
        "s.x",
        "s.v[{c3}]",
        "points[i][{c3}]",
        "points[i].z",
    ),
    "t": ("t",),
    "V": ("v", "w", "s.v", "points[i]", "v.zyx", "w.xyz"),
    "I": ("g", "g.yx"),
    "M": ("m",),
}
# whole statements besides assignments
STATEMENTS = (
    "a, b = b, a",
    "n, a = split({i})",
    "bump(a, {i})",
    "bump(k, {u})",
    "bump(cells[i, {r4}], {i})",
    "bump(g[{c2}], {i})",
    "bump(s.n, {d})",
    "ti.atomic_add(total[None], {i})",
    "v, w = w, v",
    "z[0], z[2] = z[2], {i}",
    "v.xy = {V}.zx",
    "s = Pair(n={i}, x={f}, v={V})",
    "z = [{i}, z[0], {i}]",
    "m[0, :] = {V}.xy",
    "old = ti.atomic_max(n, {i})",
    "a = old = {i}",
    "n = ti.cast({f}, ti.i32)",
    "(a, (b, n)) = ({i}, ({i}, {i}))",
    "n += cells[i, {r4}]",
    "a -= {i}",
    "b ^= {i}",
    "k <<= ti.u32({h})",
    "cells[i, {r4}] += {i}",
    "s.n |= {i}",
)
LOOPS = (
    "for {j} in range({c3} + 1):",
    "for {j} in range(({i}) % 4):",
    "for {j} in range(-1, {r4}):",
    "for {j}, {j}_ in ti.ndrange(2, {r3}):",
    "for {j} in ti.static(range(3)):",
    "for {j} in range(6, 0, -2):",
    "for {j}, {j}_ in ti.static(ti.ndrange(2, 2)):",
    "for {j}_ in ti.grouped(ti.ndrange(2, 2)):",
    "for {j}, {j}_ in ti.static(enumerate([4, 7])):",
    "for {j} in ti.static([1, 5]):",
)
MOST_DEPTH = 3


class Batch(NamedTuple):
    """Source that defines `count` programs and the kernel that runs them.

    `rounded` lists each program's rounding operation, a key of ROUNDED.
    """

    seed: int
    text: str
    count: int
    rounded: tuple[str, ...]


class Writer(Frame):
    """Writer of one program."""

    deepest = 2

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(f"{seed}.{number}")
        self.number = number
        self.indices: list[str] = []

    def write(self, rounded: str) -> str:
        """Source of the function; its last rounding operation is ROUNDED[rounded]."""
        k = self.number
        self.lines = ["@ti.func", f"def f{k}(i, a0, b0, x0):", *HEAD.splitlines()]
        for _ in range(self.r.randrange(6, 12)):
            self.statement(1, ())
        whole = "a ^ b * 3 ^ n ^ ti.cast(k, ti.i32) ^ g[0] + g[1] * 5 + z[1] + s.n + t"
        self.line(1, f"ints[{k}, i] = {whole}")
        real = "x + y + keep(v.sum() + w.sum()) + m[0, 1] + m[1, 0] + s.x + s.v[1]"
        self.line(1, f"floats[{k}, i] = {real}")
        self.line(1, "p, q = ti.abs(keep(x + y)) + 1.0, ti.abs(keep(x - y)) + 1.0")
        self.line(1, f"first[{k}, i], second[{k}, i], near[{k}, i] = p, q, {ROUNDED[rounded]}")
        return "\n".join(self.lines) + "\n"

    def expression(self, kind: str, depth: int) -> str:
        """A random expression of a type, or a small index, divisor or shift count."""
        if kind == "j":
            return f"j{self.loops}"
        if kind[0] == "c":  # a constant below
            return str(self.r.randrange(int(kind[1])))
        if kind[0] == "r":  # known at run time, below
            return f"({self.expression('i', 0)}) % {kind[1]}"
        if kind in "dh":  # a divisor, a shift
            return str(self.r.randrange(1, 8)) if kind == "d" else str(self.r.randrange(8))
        if depth <= 0 or self.r.random() < 0.25:
            return self.leaf(kind)
        return self.fill(self.r.choice(EXPRESSIONS[kind]), depth - 1)

    def leaf(self, kind: str) -> str:
        """A loop index, a literal or a local variable of the kind."""
        if kind == "i" and self.indices and self.r.random() < 0.4:
            return self.r.choice(self.indices)
        if kind in "if" and self.r.random() < 0.3:
            number = self.r.randrange(-9, 40)
            return f"({number})" if kind == "i" else f"({float(number)})"
        return self.r.choice(LOCALS[kind])

    def statement(self, depth: int, exits: Sequence[str]) -> None:
        choice = self.r.random()
        if depth > MOST_DEPTH or choice < 0.5:
            self.assignment(depth)
        elif choice < 0.62:
            self.line(depth, self.fill(self.r.choice(STATEMENTS), 2))
        elif choice < 0.78:
            self.branch(depth, exits)
        elif choice < 0.9:
            self.loop(depth)
        elif exits:
            self.leave(depth, exits)
        else:
            self.assignment(depth)

    def assignment(self, depth: int) -> None:
        """Append `target = value`, of a random type."""
        kind = self.r.choice("iiiffuVIMt")
        target = self.fill(self.r.choice(TARGETS[kind]), 1)
        self.line(depth, f"{target} = {self.expression(kind, 3)}")

    def loop(self, depth: int) -> None:
        """Append one of the LOOPS, or a `while` that counts, with a random body."""
        j, count = self.counter(), len(self.indices)
        if self.r.random() < 0.2:
            self.count(depth, j, 4)
            self.indices.append(j)
        else:
            text = self.r.choice(LOOPS)
            self.line(depth, self.fill(text, 1))
            targets = text[len("for ") : text.index(" in ")].split(", ")
            suffix = ".sum()" if "grouped" in text else ""
            self.indices += [name.replace("{j}", j) + suffix for name in targets]
        self.block(depth + 1, ("break", "continue"))
        del self.indices[count:]


def write_batch(seed: int, programs: int) -> Batch:
    """Programs f0, f1, ... and a kernel `run(c)` that calls each in every iteration of a loop."""
    r = random.Random(seed)
    rounded = tuple(r.choice(list(ROUNDED)) for _ in range(programs))
    texts = [Writer(seed, k).write(rounded[k]) for k in range(programs)]
    half = programs // 2
    kernel = ["@ti.kernel", "def run(c: ti.i32):"]
    for part in (range(half), range(half, programs)):
        kernel.append("    for i in range(4):")
        kernel += [f"        f{k}(i, i * 7 - c, c + i, float(i))" for k in part]
    return Batch(seed, "\n".join([FUNCS, *texts, *kernel]) + "\n", programs, rounded)


def define(batch: Batch, names: dict[str, Any]) -> dict[str, Any]:
    """Execute the batch's source with these names; these and all names that it defines."""
    file = f"<batch {batch.seed}>"
    linecache.cache[file] = (len(batch.text), None, batch.text.splitlines(True), file)
    found = dict(names)
    exec(compile(batch.text, file, "exec"), found)
    return found
