"""Random functions of integers mean the same in a kernel as in Python: branches, loops, `break`,
`continue` and `return` anywhere, short circuits, lists, components of vectors."""

from __future__ import annotations

import linecache
import random

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, Func, run

NAMES = ("a", "b", "c")


class Writer:
    """Writes one function. Variables are assigned first, so that Python's scoping is a kernel's."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.indices: list[str] = []
        self.count = 0

    def write(self) -> str:
        self.lines.append("def f(a, b):")
        self.line(1, "c = a - b")
        self.line(1, "w = [a, b, 3]")
        self.line(1, "v = ti.Vector([b, 2, a])")
        self.block(1, 3)
        self.line(1, f"return {self.value(2)}")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def leaf(self) -> str:
        if self.r.random() < 0.15:
            return f"w[{self.r.randrange(3)}]"
        if self.r.random() < 0.15:
            return self.component()
        return self.r.choice([*NAMES, *self.indices, str(self.r.randrange(-5, 9))])

    def component(self) -> str:
        kinds = ["v.x", "v[1]", "v.b", f"v[({self.r.choice(NAMES)}) % 3]", "v.zy[1]"]
        return self.r.choice(kinds)

    def value(self, depth: int) -> str:
        kind = self.r.randrange(8)
        if depth == 0 or kind < 2:
            return self.leaf()
        x, y = self.value(depth - 1), self.value(depth - 1)
        if kind == 2:
            return f"({x} if {self.condition(1)} else {y})"
        return f"(({x}) {self.r.choice('+-*')} ({y})) % 1009"

    def condition(self, depth: int) -> str:
        kind = self.r.randrange(5)
        if depth == 0 or kind < 2:
            return f"({self.value(1)}) {self.r.choice(['<', '<=', '==', '!=', '>'])} {self.leaf()}"
        x, y = self.condition(depth - 1), self.condition(depth - 1)
        if kind == 2:
            return f"not ({x})"
        return f"({x}) {self.r.choice(['and', 'or'])} ({y})"

    def block(self, depth: int, statements: int, in_loop: bool = False) -> None:
        for _ in range(self.r.randrange(1, statements + 1)):
            self.statement(depth, in_loop)

    def statement(self, depth: int, in_loop: bool) -> None:
        kind = self.r.randrange(12)
        if kind < 4 or depth > 4:
            self.assignment(depth)
        elif kind < 7:
            self.line(depth, f"if {self.condition(2)}:")
            self.block(depth + 1, 3, in_loop)
            if self.r.random() < 0.5:
                self.line(depth, "else:")
                self.block(depth + 1, 3, in_loop)
        elif kind < 9:
            self.loop(depth)
        elif kind == 9 and self.r.random() < 0.5:
            self.line(depth, f"return {self.value(1)}")
        elif in_loop:
            self.line(depth, self.r.choice(["break", "continue"]))
        else:
            self.assignment(depth)

    def assignment(self, depth: int) -> None:
        if self.r.random() < 0.1:
            self.line(depth, self.r.choice(["v.xy = v.yx", "v.zx = [a, b]", "v = v.yzx + c"]))
        target = self.r.choice([*NAMES, f"w[{self.r.randrange(3)}]", self.component()])
        target = target.replace("v.zy[1]", "v.z")
        if self.r.random() < 0.3:
            self.line(depth, f"{target} += {self.leaf()}")
        self.line(depth, f"{target} = ({self.value(2)}) % 1009")

    def loop(self, depth: int) -> None:
        self.count += 1
        name = f"i{self.count}"
        kind = self.r.randrange(3)
        if kind == 0:
            self.line(depth, f"{name} = 0")
            self.line(depth, f"while {name} < {self.r.randrange(1, 5)} and ({self.condition(1)}):")
            self.line(depth + 1, f"{name} += 1")
        elif kind == 1:
            step = self.r.choice(["", ", 2", ", -1"])
            begin = self.leaf() if self.r.random() < 0.3 else self.r.randrange(-2, 3)
            self.line(
                depth, f"for {name} in range({begin}, {begin} + {self.r.randrange(5)}{step}):"
            )
        else:
            self.line(depth, f"for {name} in STATIC(range({self.r.randrange(1, 4)})):")
        self.indices.append(name)
        self.block(depth + 1, 3, in_loop=True)
        self.indices.pop()


def define(seed: int, static: object) -> object:
    text = Writer(seed).write()
    file = f"<random {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"STATIC": static, "ti": ti}
    exec(compile(text, file, "exec"), names)
    return names["f"]


@pytest.mark.parametrize("seed", range(150))
def test_kernel_agrees_with_python(seed):
    python, f = define(seed, iter), Func(define(seed, ti.static))
    args = [(0, 0), (1, 2), (7, -3), (500, 20)]
    x = Field(np.array(args, np.int32))
    out = Field(np.zeros(len(args), np.int32))

    def in_parallel():
        for i in out:
            out[i] = f(x[i, 0], x[i, 1])

    def serially(a: ti.i32, b: ti.i32) -> ti.i32:
        return f(a, b)

    want = [python(*a) for a in args]
    run(in_parallel)
    assert out.data.tolist() == want
    assert run(serially, *args[2]) == want[2]
