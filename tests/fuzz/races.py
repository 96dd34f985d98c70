"""Random kernels whose iterations may conflict, with indices known and unknown to the compiler.

The text is the body of a kernel; `compile_serial` makes a function on NumPy arrays of it, whose
loops run in given orders.

    python -c "from tests.fuzz.races import *; print(write_program(SEED))"
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

N = 8
FLOATS, INTEGERS = ("x", "y", "z", "mask"), ("own", "near", "perm", "flag")
INDICES = (
    "i", "i", "i", "(i + 1) % 8", "7 - i", "near[i]", "near[i]", "i // 2", "i % 3", "2",
    "(i * 3) % 8", "perm[i]", "own[{}]",
)  # fmt: skip
CONDITIONS = "i % 2 == 0", "flag[i] == 1", "x[i] > 0.55", "own[i] > 3", "i == 2", "i < 4"


def write_program(seed: int) -> str:
    """The body of a kernel: two or three parallel loops, indented by one level."""
    pick = random.Random(seed)
    lines = ["last = 0.3"]
    for _ in range(pick.randint(1, 2)):
        lines.append("for i in range(8):")
        lines += indented(line for _ in range(pick.randint(1, 3)) for line in statement(pick, 0))
    lines += ["for i in range(8):", "    loss[None] += y[i] * y[i] * (i + 1) + x[i] * (i + 2)"]
    return "\n".join(indented(lines))


def indented(lines: Any) -> list[str]:
    return ["    " + line for line in lines]


def statement(pick: random.Random, depth: int) -> list[str]:
    """The lines of a random statement; an `if` with a body only at depth 0."""
    kind = pick.random()
    array = pick.choice("xyz")
    if kind < 0.5:
        sign = "=" if kind < 0.3 else "+="
        return [f"{array}[{index(pick)}] {sign} {value(pick)}"]
    if kind < 0.62:
        return [f"own[{index(pick, 'i')}] = {pick.choice(['i', 'i // 2', '3', 'near[i]'])}"]
    if kind < 0.68:
        return [f"last = {pick.choice(['', 'last + '])}{value(pick)}"]
    if kind < 0.72:
        return ["y[i] = last * x[i]"]
    if depth:
        return [f"y[i] = {value(pick)}"]
    body = [line for _ in range(pick.randint(1, 2)) for line in statement(pick, 1)]
    return [f"if {pick.choice(CONDITIONS)}:", *indented(body)]


def index(pick: random.Random, inner: str = "") -> str:
    """A random index expression; `inner` is the index of `own`, if that is chosen."""
    return pick.choice(INDICES).format(inner or index(pick, "i"))


def value(pick: random.Random) -> str:
    """An expression to store or add."""
    kind, factor = pick.random(), pick.choice([0.5, 1.5, 2.0])
    one, other = (f"{pick.choice('xy')}[{index(pick)}]" for _ in range(2))
    if kind < 0.4:
        return f"{factor} * {one}"
    if kind < 0.6:
        return f"{one} * {other}"
    if kind < 0.7:
        return f"mask[i] * ({one} - {other})"
    if kind < 0.8:
        return f"ti.select(flag[i] == 1, {one} * {factor}, {pick.choice('xy')}[i])"
    return f"{factor} * z[{index(pick)}]"


class Serial:
    """Stand-in for `ti` in the function of NumPy arrays."""

    @staticmethod
    def select(c: bool, a: float, b: float) -> float:
        return a if c else b


def compile_serial(body: str) -> Callable[..., None]:
    """A function that runs `body` in place on arrays, given by name.

    `orders` lists, for each loop, its iterations in the order to run.
    """
    parts = body.split("for i in range(8):")
    text = parts[0] + "".join(
        f"for i in orders[{k}]:{part}" for k, part in enumerate(parts[1:])
    )  # fmt: skip
    names = ", ".join((*FLOATS, *INTEGERS, "loss", "orders"))
    space: dict[str, Any] = {"ti": Serial}
    exec(f"def run({names}):\n" + text.replace("loss[None]", "loss[0]"), space)
    run: Callable[..., None] = space["run"]
    return run
