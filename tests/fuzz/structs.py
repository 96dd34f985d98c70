"""Random programs about structs, in text that is valid as a kernel and as plain Python.

    text = write_program(seed)
    run_kernel(text, 3) == run_python(text, 3)

The reference is plain Python, where `PYTHON` stands for `ti` and funcs copy arguments that are not
passed by reference. Numbers are kept small, so integers do not overflow.
"""

from __future__ import annotations

import copy
import functools
import inspect
import linecache
import random
from types import SimpleNamespace
from typing import Any

import vkchi as ti

HEAD = """\
@ti.func
def same(s):
    return s

@ti.func
def spend(s):
    s.a += 1
    s.b -= s.a
    return (s.a + s.b) % 97

@ti.func
def change(s: ti.template(), k):
    if k > 2:
        s.a = (s.a + k) % 97
    else:
        s.b = s.a - k

@ti.func
def turn(o: ti.template()):
    change(o.p, o.n)
    t = same(o.p)
    o.p = same(o.q)
    o.q = t
    for i in range(3):
        o.n = (o.n + i) % 97

@ti.func
def pick(c, s, t):
    r = same(s)
    if c > 0:
        r = same(t)
        r.b = (r.b + 1) % 97
    return r

@ti.func
def search(c, s):
    for i in range(4):
        if i == c:
            return In(s.a, i)
        s.a = (s.a + 1) % 97
    return In(-1, s.b)

@ti.kernel
def program(m: ti.i32) -> ti.types.vector(5, ti.i32):
    k = 2
    x, y = In(1, 2), In(b=m)
    o, w = Out(In(3, 4), In(5, 6), 7), Out(n=m)
    for _ in range(1):
"""
TAIL = """\
    total = k * 97 + w.n + w.p.a - w.q.b + x.a * 2 + x.b + y.a - y.b
    return ti.Vector([o.p.a, o.p.b, o.q.a + o.q.b, o.n, total])
"""


class Writer:
    """Writer of the statements of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = self.depth = 0

    def one_of(self, *forms: str) -> str:
        """One of the forms, with each `$` and letter replaced by a random expression.

        The letters: n an integer, s an assignable struct, v a struct value, o an outer struct, f
        the name of an integer member.
        """
        form = self.random.choice(forms)
        parts = {"n": self.number, "s": self.struct, "v": self.value, "o": self.outer, "f": self.f}
        while "$" in form:
            at = form.index("$")
            form = form[:at] + parts[form[at + 1]]() + form[at + 2 :]
        return form

    def f(self) -> str:
        return self.random.choice("ab")

    def outer(self) -> str:
        return self.random.choice("ow")

    def struct(self) -> str:
        return self.one_of("x", "y", "$o.p", "$o.q")

    def number(self) -> str:
        forms = ["k", "m", "$s.$f", "$o.n", "spend($s)", "($n - $n)", "($n + $n)", "($n % 7)"]
        return self.one_of(str(self.random.randrange(-3, 6)), *forms)

    def value(self) -> str:
        return self.one_of(
            "In($n % 97, $n % 97)",
            "In(b=$n % 97)",
            "same($s)",
            "pick($n, $s, $s)",
            "search($n, $s)",
        )

    def statement(self, indent: str) -> list[str]:
        """The lines of a statement, or of a branch or loop with more statements."""
        if self.depth < 3 and self.random.random() < 0.4:
            self.depth += 1
            found = self.random.choice([self.branch, self.for_loop, self.while_loop])(indent)
            self.depth -= 1
            return found
        text = self.one_of(
            "$s.$f = $n % 97", "$s = $v", "$o = Out($v, $v, $n % 97)", "$o.n = $n % 97",
            "change($s, $n % 97)", "turn($o)", "k = $n % 97", "$o = same($o)",
        )  # fmt: skip
        return [indent + text]

    def block(self, indent: str) -> list[str]:
        count = self.random.randrange(1, 4)
        return [line for _ in range(count) for line in self.statement(indent)]

    def branch(self, indent: str) -> list[str]:
        found = [self.one_of(f"{indent}if $n > $n:"), *self.block(indent + "    ")]
        if self.random.random() < 0.6:
            found += [f"{indent}else:", *self.block(indent + "    ")]
        return found

    def for_loop(self, indent: str) -> list[str]:
        self.loops += 1
        inner = indent + "    "
        head = f"{indent}for i{self.loops} in range({self.random.randrange(4)}):"
        leave = [
            self.one_of(f"{inner}if $n > 3:"),
            self.one_of(f"{inner}    break", f"{inner}    continue"),
        ]
        return [head, *self.block(inner), *leave, *self.block(inner)]

    def while_loop(self, indent: str) -> list[str]:
        self.loops += 1
        name, inner = f"c{self.loops}", indent + "    "
        head = [f"{indent}{name} = 0", f"{indent}while {name} < {self.random.randrange(4)}:"]
        return [*head, f"{inner}{name} += 1", *self.block(inner)]


def write_program(seed: int) -> str:
    """Source of the funcs and the kernel `program(m)`, with six random statements."""
    writer = Writer(seed)
    lines = [line for _ in range(6) for line in writer.statement(" " * 8)]
    return HEAD + "\n".join(lines) + "\n" + TAIL


# --- as a kernel ---------------------------------------------------------------------------------

In = ti.types.struct(a=ti.i32, b=ti.i32)
Out = ti.types.struct(p=In, q=In, n=ti.i32)


def run_kernel(text: str, m: int) -> list[int]:
    """The kernel's result for `m`, as a list of five integers."""
    file = f"<program {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"ti": ti, "In": In, "Out": Out}
    exec(compile(text, file, "exec"), names)
    return names["program"](m).to_list()  # type: ignore[no-any-return]


# --- in Python -----------------------------------------------------------------------------------


def func(fn: Any) -> Any:
    """A decorator that passes copies of arguments whose parameters have no annotation."""
    by_value = [p.annotation is p.empty for p in inspect.signature(fn).parameters.values()]

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*[copy.deepcopy(x) if copied else x for x, copied in zip(args, by_value)])

    return call


def make_in(a: int = 0, b: int = 0) -> Any:
    """Stand-in for the constructor of `In`."""
    return SimpleNamespace(a=a, b=b)


def make_out(p: Any = None, q: Any = None, n: int = 0) -> Any:
    """Stand-in for the constructor of `Out`, which copies its members."""
    return SimpleNamespace(p=copy.deepcopy(p) or make_in(), q=copy.deepcopy(q) or make_in(), n=n)


PYTHON = SimpleNamespace(
    func=func, kernel=lambda fn: fn, template=lambda: "by reference", i32=int, Vector=list,
    types=SimpleNamespace(vector=lambda n, t: None),
)  # fmt: skip


def run_python(text: str, m: int) -> list[int]:
    """The program's result for `m` in plain Python."""
    names: dict[str, Any] = {"ti": PYTHON, "In": make_in, "Out": make_out}
    exec(text, names)
    return names["program"](m)  # type: ignore[no-any-return]
