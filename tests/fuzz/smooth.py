"""Random differentiable kernels, as Python source.

    text = write_kernel(seed)      # defines `run(c)`, on the fields below

A kernel is a sequence of parallel loops, serial loops and plain statements. It works on fields of
numbers (x, y, z) and vectors (v, w), kernel-level variables (s, p) and a `loss`. Indices come from
loops and the integer field `perm`, trip counts from the integer field `count`.

In a parallel loop no iteration reads elements that another iteration writes, and atomics add to
fields that the loop does not read. Values are kept small, usually by sines, so differences
approximate derivatives well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.fuzz.writer import Frame

N = 3
NUMBERS, VECTORS, VARIABLES = ("x", "y", "z"), ("v", "w"), ("s", "p")
EXITS = ("continue", "break")  # a parallel loop has the first only
FUNCS = """\
@ti.func
def turn(a, b, n):
    r = a * b
    if a > b:
        return ti.sin(r + a)
    for j in range(n):
        r = r * 0.7 + b
        if r > 1.2:
            return r * a
    return r - b

@ti.func
def grow(a: ti.template(), b):
    a += b * a
    a = ti.sin(a)

@ti.func
def rotate(q, a):
    c = ti.Vector([ti.cos(a), ti.sin(a)])
    c[0] = c.y * q.x + 0.3
    return q * c.yx
"""
EXPRESSIONS = {
    "f": (
        "({f} + {f})",
        "({f} - {f})",
        "({f} * {f})",
        "({f}) / (1.5 + ti.sin({f}))",
        "ti.sin({f})",
        "ti.cos({f} + 1.0)",
        "ti.exp(ti.sin({f}))",
        "ti.sqrt(ti.sin({f}) + 1.3)",
        "ti.tanh({f})",
        "ti.log(1.4 + ti.sin({f}))",
        "ti.atan2({f}, 1.5 + ti.sin({f}))",
        "({f}) ** 2",
        "(1.5 + ti.sin({f})) ** ({f})",
        "ti.max({f}, {f})",
        "ti.min({f}, {f})",
        "ti.abs({f})",
        "({f} if {t} else {f})",
        "ti.select({t}, {f}, {f})",
        "turn({f}, {f}, {n})",
        "{V}.dot({V})",
        "{V}.x",
        "{V}[{k}]",
        "{V}.norm(0.1)",
        "{V}.sum()",
        "({V}.outer_product({V}) @ {V}).y",
        "ti.floor({f}) * {f}",
        "float(int({f} * 3.0)) * {f}",
    ),
    "V": (
        "({V} + {V})",
        "({V} * {f})",
        "ti.Vector([{f}, {f}])",
        "rotate({V}, {f})",
        "{V}.yx",
        "({V} if {t} else {V})",
        "ti.max({V}, {V})",
    ),
    "t": ("({f} > {f})", "({f} < 0.3)", "({n} > 1)", "({t} and {t})", "(not {t})"),
    "n": ("{k}", "count[{k}]", "2"),
}


class Place(NamedTuple):
    """Permitted accesses in a part of a kernel.

    `read`: fields to read at any element; `own`: fields to read and write, in a parallel loop at
    the iteration's element; `add`: fields and variables to add to.
    """

    read: tuple[str, ...]
    own: tuple[str, ...]
    add: tuple[str, ...]
    is_serial: bool


class Writer(Frame):
    """Writer of one kernel."""

    longest, elifs = 2, None

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.place = Place((), (), (), True)
        self.locals: dict[str, list[str]] = {}
        self.indices: list[str] = []

    def write(self) -> str:
        self.lines = [FUNCS, "@ti.kernel", "def run(c: ti.i32):"]
        self.line(1, "s = x[0] * 0.5")
        self.line(1, "p = 0.2")
        for _ in range(self.r.randrange(1, 4)):
            self.part()
        self.line(1, "loss[None] += s * p")
        return "\n".join(self.lines) + "\n"

    # --- parts of a kernel

    def part(self) -> None:
        """Append a parallel loop, a serial loop, or assignments to kernel-level variables."""
        kind = self.r.random()
        if kind < 0.6:
            self.parallel()
            return
        self.place = Place((*NUMBERS, *VECTORS, "loss"), (*NUMBERS, *VECTORS), ("loss",), True)
        self.locals, self.indices = {"f": list(VARIABLES), "V": []}, ["1"]
        if kind < 0.8:
            self.line(1, "ti.loop_config(serialize=True)")
            self.body(f"for t in range({self.r.choice(['c', '2', 'count[1] + 1'])}):", "t % 3")
        else:
            for _ in range(self.r.randrange(1, 4)):
                self.assignment(1)

    def parallel(self) -> None:
        """Append a parallel loop over all elements, or over the first `c`."""
        fields = [*NUMBERS, *VECTORS]
        self.r.shuffle(fields)
        cut, end = self.r.randrange(1, 4), self.r.randrange(4, 6)
        is_read = self.r.random() < 0.5
        adds = (*fields[end:], *(() if is_read else VARIABLES), "loss")
        self.place = Place(tuple(fields[cut:end]), tuple(fields[:cut]), adds, False)
        self.locals = {"f": list(VARIABLES) if is_read else [], "V": []}
        self.indices = []
        headers = [f"for i in range({N}):", "for i in x:", "for i in ti.ndrange(c):"]
        self.body(self.r.choice(headers), "i")

    def body(self, header: str, index: str) -> None:
        """Append a loop with local variables `a`, `b` and `q`, random statements and two stores."""
        self.line(1, header)
        self.indices.append(index)
        self.line(2, f"a, b = {self.expression('f', 1)}, {self.expression('f', 0)}")
        self.line(2, f"q = ti.Vector([{self.expression('f', 0)}, {self.expression('f', 1)}])")
        self.locals["f"] += ["a", "b", "q.x"]
        self.locals["V"] += ["q"]
        for _ in range(self.r.randrange(1, 5)):
            self.statement(2, EXITS if self.place.is_serial else EXITS[:1])
        self.store(2)
        self.store(2)

    # --- expressions

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a kind: number `f`, vector `V`, bool `t`, integer `n`, constant index
        `k`."""
        if kind == "k":
            return str(self.r.randrange(2))
        if depth <= 0 and kind in "fV":
            return self.leaf(kind)
        return self.fill(self.r.choice(EXPRESSIONS[kind]), depth - 1)

    def leaf(self, kind: str) -> str:
        if self.r.random() < 0.1:
            number = f"{self.r.uniform(-1, 1):.2f}"
            return number if kind == "f" else f"ti.Vector([{number}, 0.4])"
        found = list(self.locals[kind])
        fields = NUMBERS if kind == "f" else VECTORS
        found += [f"{name}[{self.index()}]" for name in self.place.read if name in fields]
        found += [f"{name}[{self.indices[0]}]" for name in self.place.own if name in fields]
        if kind == "f":
            found += [f"{name}[{self.index()}].y" for name in self.place.read if name in VECTORS]
            found += ["loss[None]"] if "loss" in self.place.read else []
        return self.r.choice(found or (["0.7"] if kind == "f" else ["ti.Vector([0.3, 0.8])"]))

    def index(self) -> str:
        """An expression for the index of any element."""
        i = self.r.choice(self.indices)
        return self.r.choice([i, f"perm[{i}]", f"({i} + 1) % 3", f"perm[({i} + 2) % 3]"])

    # --- statements

    def statement(self, depth: int, exits: Sequence[str]) -> None:
        choice = self.r.random()
        if depth > 4 or choice < 0.45:
            self.assignment(depth)
        elif choice < 0.55:
            self.store(depth)
        elif choice < 0.7:
            self.branch(depth, exits)
        elif choice < 0.9:
            self.loop(depth)
        elif choice < 0.95 and exits:
            self.leave(depth, exits)
        else:
            self.line(depth, f"grow({self.target()}, {self.expression('f', 1)})")

    def target(self) -> str:
        return self.r.choice(["a", "b", "q.x", "q[1]"] if "a" in self.locals["f"] else VARIABLES)

    def assignment(self, depth: int) -> None:
        if "q" in self.locals["V"] and self.r.random() < 0.2:
            self.line(depth, f"q = {self.bounded('V')}")
            return
        text = self.bounded("f")
        form = self.r.choice(["{0} = {1}", "{0} += {1}", "{0} *= {1} * 0.9", "{0} = {0} * {1}"])
        self.line(depth, form.format(self.target(), text))

    def bounded(self, kind: str) -> str:
        """A sine of an expression; for vectors also half an expression."""
        text = self.expression(kind, self.r.randrange(1, 3))
        return f"ti.sin({text})" if kind == "f" or self.r.random() < 0.5 else f"({text}) * 0.5"

    def store(self, depth: int) -> None:
        """Append a store to an `own` field, or an addition."""
        if self.r.random() < 0.4:
            self.add(depth)
            return
        name = self.r.choice(self.place.own)
        index = self.index() if self.place.is_serial else self.indices[0]
        if name in NUMBERS:
            form = self.r.choice(["{} = {}", "{} += {}", "{} *= {}", "ti.atomic_sub({}, {})"])
            self.line(depth, form.format(f"{name}[{index}]", self.bounded("f")))
            return
        kind = self.r.choice(["V", "f"])
        suffix = "" if kind == "V" else self.r.choice([".x", "[1]", f"[perm[{index}] % 2]"])
        form = self.r.choice(["{} = {}", "{} += {}", "{} *= {}"])
        self.line(depth, form.format(f"{name}[{index}]{suffix}", self.bounded(kind)))

    def add(self, depth: int) -> None:
        """Append an addition to a field or variable of `add`."""
        name = self.r.choice(self.place.add)
        if name in VARIABLES:
            self.line(depth, f"{name} += {self.bounded('f')}")
        elif name == "loss":
            self.line(depth, f"loss[None] += {self.bounded('f')}")
        else:
            kind = "f" if name in NUMBERS else "V"
            self.line(depth, f"{name}[{self.index()}] += {self.bounded(kind)}")

    def loop(self, depth: int) -> None:
        """Append a serial loop with a random body."""
        j, kind = self.counter(), self.r.randrange(4)
        if kind == 0:
            self.count(depth, j, 3)
        elif kind == 1:
            self.line(depth, f"for {j} in range(count[{self.indices[0]}]):")
        elif kind == 2:
            self.line(depth, f"for {j} in ti.static(range(2)):")
        else:
            self.line(depth, f"for {j} in range({self.r.choice(['2', 'c - 1', '3, 0, -1', '0'])}):")
        self.indices.append(f"{j} % 3")
        self.block(depth + 1, () if kind == 2 else EXITS)
        self.indices.pop()


def write_kernel(seed: int) -> str:
    """Source of the kernel `run(c)` and the functions that it calls."""
    return Writer(seed).write()
