"""Random programs whose iterations own rows or elements of arrays, as Python source.

    text = write_program(seed)      # defines kernels run0, run1, ... and `drive`, which calls them

Features beyond the programs of `smooth.py`:
- arrays of two axes, of which a permutation selects the iteration's row, and loop-carried counters
  the column;
- local vectors with computed component indices;
- integers in memory;
- atomics whose old value is used, and atomic sums and extremes at computed places;
- functions that change their arguments or return from within loops;
- conditions on values that the loop has stored.

In parallel loops no iteration reads elements that another iteration writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.writer import Frame

N, M, H = 4, 5, 4  # rows, columns, components of the local vector
GRIDS, LINES = ("A", "B", "C"), ("x", "y")
FUNCS = """\
@ti.func
def seek(F: ti.template(), r, a):
    s = a
    for j in range(5):
        s += F[r, j] * 0.4
        if s > 1.5:
            return s * F[r, j]
        if s < -1.5:
            break
    return s - a

@ti.func
def stir(F: ti.template(), r, a, n):
    for j in range(1, n + 2):
        t = F[r, j - 1] * a
        F[r, j - 1] = ti.sin(F[r, j] + t)
        if t > 0.4:
            return t
    return F[r, 0]

@ti.func
def turn(h: ti.template(), k, a):
    h[k] = h[(k + 1) % 4] * a
    if h[k] > 0.3:
        h[(k + 2) % 4] += a
"""
EXPRESSIONS = {
    "f": (
        "({f} + {f})",
        "({f} * {f})",
        "({f} - {f} * {f})",
        "ti.sin({f})",
        "({f}) / (1.5 + ti.cos({f}))",
        "ti.exp(ti.sin({f}))",
        "ti.max({f}, {f})",
        "ti.min({f}, {f})",
        "ti.abs({f})",
        "({f}) ** 2",
        "({f} if {t} else {f})",
        "ti.select({t}, {f}, {f})",
        "({f} * {n})",
        "seek({F}, {r}, {f})",
        "h.dot(h)",
        "(h * {f}).sum()",
    ),
    "t": (
        "{f} > {f}",
        "{f} < 0.4",
        "{n} > 1",
        "{n} % 2 == 0",
        "({t} and {t})",
        "({t} or {t})",
        "not ({t})",
    ),
    "n": ("k", "m", "(k + m)", "(k // 2)", "int(ti.abs({f}) * 2.0)", "ti.max(k, m)", "{d}"),
}
CHANGES = (
    "k = (k + 1) % 6",
    "k += 1",
    "m = (k * 2 + m) % 4",
    "m = k // 2",
    "k, m = m, k",
    "m = {n} % 3",
    "k = {n} % 5",
)
STORES = ("{} = {}", "{} += {}", "{} *= {}", "{} -= {}", "ti.atomic_sub({}, {})")


class Writer(Frame):
    """Writer of the kernels of one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.own: list[str] = []  # arrays whose row `r` the iteration reads and writes
        self.read: list[str] = []  # arrays that it reads
        self.add: list[str] = []  # arrays that it only adds to
        self.top: list[str] = []  # arrays that it only takes extremes of
        self.is_serial = False
        self.is_cell = False  # iterations own elements [r, s] of grids, not rows
        self.counters: list[str] = []

    def kernel(self, name: str) -> str:
        self.lines = ["@ti.kernel", f"def {name}(n: ti.i32):"]
        for _ in range(self.r.randrange(1, 3)):
            self.part()
        return "\n".join(self.lines) + "\n"

    def part(self) -> None:
        """Append a loop, parallel or serial, and choose the arrays that it may read, own and add
        to."""
        self.is_serial, self.is_cell = self.r.random() < 0.3, False
        names = [*GRIDS, *LINES]
        self.r.shuffle(names)
        cut = self.r.randrange(1, 4)
        self.own, self.read = names[:cut], names[cut:4]
        self.add, self.top = [], []
        (self.add if self.r.random() < 0.7 else self.top).extend(names[4:])
        if self.is_serial:
            self.own, self.read, self.add, self.top = names, [], [], []
            self.line(1, "ti.loop_config(serialize=True)")
            self.line(1, "for i in range(n + 1):")
        elif self.r.random() < 0.3:
            self.is_cell = True
            self.own = [name for name in self.own if name in GRIDS] or ["A"]
            for others in (self.read, self.add, self.top):
                others[:] = [name for name in others if name not in self.own]
            self.line(1, self.r.choice(["for i, s in A:", "for i, s in ti.ndrange(4, 5):"]))
        else:
            self.line(1, self.r.choice(["for i in range(4):", "for i in x:", "for i in perm:"]))
        self.counters = ["i"]
        row = self.r.choice(["i", "perm[i]", "3 - i", "(i + n) % 4", "perm[perm[i]]"])
        self.is_known = self.is_serial or row in ("i", "3 - i")
        self.line(2, f"r = {row if not self.is_serial else 'i % 4'}")
        self.line(2, "k, m = 0, c[r]")
        self.line(2, "a, b = 0.4, 0.9")
        self.line(2, "h = ti.Vector([a, b, 0.3, 0.7])")
        self.line(2, f"a = {self.expression('f', 1)}")
        self.line(2, f"h[1] = {self.expression('f', 0)}")
        for _ in range(self.r.randrange(2, 6)):
            self.statement(2, ["continue", "break"] if self.is_serial else ["continue"])
        self.store(2)
        self.line(2, f"loss[None] += {self.bounded()}")

    # --- expressions

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a kind: float `f`, bool `t`, small integer `n`, array `F`, row `r`,
        digit `d`."""
        if kind == "d":
            return str(self.r.randrange(4))
        if kind == "F":
            rows = self.read if self.is_cell else [*self.own, *self.read]
            found = [g for g in rows if g in GRIDS]
            return self.r.choice(found) if found else "K"
        if kind == "r":
            return "r"
        if depth <= 0 and kind == "f":
            return self.leaf()
        if depth <= 0 and kind == "n":
            return self.r.choice(["k", "m", "2"])
        return self.fill(self.r.choice(EXPRESSIONS[kind]), depth - 1)

    def column(self) -> str:
        """An expression for an integer from 0 to M - 1."""
        j = self.r.choice(self.counters)
        return self.r.choice(
            ["k % 5", f"({j} + m) % 5", f"{j} % 5", "(k * 2 + 1) % 5", "ti.min(k, 4)", "2", "0",
             f"4 - {j} % 5", f"({j} + 4) % 5"]
        )  # fmt: skip

    def component(self) -> str:
        j = self.r.choice(self.counters)
        return f"h[{self.r.choice(['k % 4', f'({j} + 1) % 4', '2', '(m + k) % 4', f'{j} % 4'])}]"

    def place(self, name: str, row: str) -> str:
        if self.is_cell and name in self.own:
            return f"{name}[r, s]"
        return f"{name}[{row}, {self.column()}]" if name in GRIDS else f"{name}[{row}]"

    def any_row(self) -> str:
        j = self.r.choice(self.counters)
        return self.r.choice(["i % 4", "perm[i % 4]", "(i + 1) % 4", f"{j} % 4", "k % 4"])

    def leaf(self) -> str:
        found = ["a", "b", self.component(), "h[2]"]
        found += [self.place(g, self.own_row()) for g in self.own]
        found += [self.place(g, self.any_row()) for g in self.read]
        return self.r.choice(found)

    def own_row(self) -> str:
        return self.any_row() if self.is_serial and self.r.random() < 0.5 else "r"

    def bounded(self) -> str:
        return f"ti.sin({self.expression('f', self.r.randrange(1, 3))})"

    # --- statements

    def statement(self, depth: int, exits: Sequence[str]) -> None:
        kinds = [self.assign, self.store, self.change, self.local, self.atomic, self.call]
        choice = self.r.random()
        if depth > 4 or choice < 0.5:
            self.r.choice(kinds)(depth)
        elif choice < 0.7:
            self.branch(depth, exits)
        elif choice < 0.92:
            self.loop(depth)
        elif exits:
            self.leave(depth, exits)
        else:
            self.change(depth)

    def assign(self, depth: int) -> None:
        form = self.r.choice(["{0} = {1}", "{0} += {1}", "{0} = {0} * {1}"])
        self.line(depth, form.format(self.r.choice("ab"), self.bounded()))

    def store(self, depth: int) -> None:
        """Append a store or an atomic to memory."""
        choice = self.r.random()
        if choice < 0.25 and self.add:
            name = self.r.choice(self.add)
            self.line(depth, f"{self.place(name, self.any_row())} += {self.bounded()}")
        elif choice < 0.25 and self.top:
            name = self.r.choice(self.top)
            kind = "min" if name in "Ax" else "max"
            self.line(
                depth, f"ti.atomic_{kind}({self.place(name, self.any_row())}, {self.bounded()})"
            )
        elif choice < 0.35:
            self.line(depth, f"{'k' if self.is_cell else 'c[r]'} = {self.expression('n', 1)} % 4")
        else:
            place = self.place(self.r.choice(self.own), self.own_row())
            self.line(depth, self.r.choice(STORES).format(place, self.bounded()))

    def change(self, depth: int) -> None:
        """Append a change of the integer variables `k` and `m`."""
        text = self.r.choice(CHANGES)
        self.line(depth, text.replace("{n}", self.expression("n", 1)))

    def local(self, depth: int) -> None:
        """Append a change of the local vector `h`."""
        form = self.r.choice(["{0} = {1}", "{0} += {1}", "{0} *= {1}", "h = h * {1}"])
        self.line(depth, form.format(self.component(), self.bounded()))

    def atomic(self, depth: int) -> None:
        """Append an atomic whose old value is used, or a change of `h` if the row is a permuted
        one."""
        if not self.is_known:
            return self.local(depth)
        place = self.place(self.r.choice(self.own), self.own_row())
        kind = self.r.choice(["add", "sub", "max", "min", "mul"])
        self.line(depth, f"{self.r.choice('ab')} = ti.atomic_{kind}({place}, {self.bounded()})")

    def call(self, depth: int) -> None:
        """Append a call of a function that changes its argument."""
        grids = [g for g in self.own if g in GRIDS and not self.is_cell]
        if grids and self.r.random() < 0.6:
            self.line(
                depth, f"b = stir({self.r.choice(grids)}, r, a, {self.expression('n', 0)} % 4)"
            )
        else:
            self.line(depth, f"turn(h, {self.expression('n', 0)} % 4, {self.bounded()})")

    def loop(self, depth: int) -> None:
        """Append a serial loop with a random body."""
        j, kind = self.counter(), self.r.randrange(6)
        if kind < 2:
            self.count(depth, j, 4)
        elif kind == 2:
            self.line(depth, f"for {j} in range(k % 3, {self.r.choice(['m % 4 + 1', '4', 'n'])}):")
        elif kind == 3:
            self.line(depth, f"for {j} in ti.static(range(2)):")
        else:
            self.line(depth, f"for {j} in range({self.r.choice(['3', 'n', 'c[r] % 4', 'm % 3'])}):")
        self.counters.append(j)
        self.block(depth + 1, [] if kind == 3 else ["continue", "break"])
        self.counters.pop()


ENDS = """\
@ti.kernel
def begin():
    for i, j in A:
        A[i, j], B[i, j], C[i, j] = ti.sin(A[i, j]), ti.cos(B[i, j]), 0.9 * C[i, j]
    for i in x:
        x[i], y[i] = 0.7 * y[i], x[i] * x[i]

@ti.kernel
def total():
    for i, j in A:
        loss[None] += A[i, j] * (i + 0.3 * j) - B[i, j] * C[i, (j + 1) % 5] + ti.sin(B[i, j])
    for i in x:
        loss[None] += x[i] * y[3 - i] + x[i]
"""


def write_program(seed: int) -> str:
    """Source of two random kernels, the fixed functions and kernels, and `drive`."""
    w = Writer(seed)
    kernels = [w.kernel(f"run{k}") for k in range(2)]
    calls = []
    for _ in range(w.r.randrange(1, 5)):
        calls.append(f"    run{w.r.randrange(2)}({w.r.randrange(5)})")
        if w.r.random() < 0.3:
            calls.append("    total()")
    return (
        "\n".join([FUNCS, ENDS, *kernels, "def drive():", "    begin()", *calls, "    total()"])
        + "\n"
    )
