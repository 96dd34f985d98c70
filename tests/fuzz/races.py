"""Random kernels whose iterations may meet: scatters, gathers, owners, flags and recurrences, by
indices known and unknown. The same text is a kernel and a function on numpy arrays, in which each
loop takes its iterations in an order that is given.

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
    """The body of a kernel, indented by one level."""
    pick = random.Random(seed)
    lines = ["last = 0.3"]
    for _ in range(pick.randint(1, 2)):
        lines.append("for i in range(8):")
        lines += indented(line for _ in range(pick.randint(1, 3)) for line in statement(pick, 0))
    lines += ["for i in range(8):", "    loss[None] += y[i] * y[i] * (i + 1) + x[i] * (i + 2)"]
    return "\n".join(indented(lines))


def indented(lines: Any) -> list[str]:
    """The lines one level further in."""
    return ["    " + line for line in lines]


def statement(pick: random.Random, depth: int) -> list[str]:
    """A statement of an iteration, with its parts."""
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
    """Index of a read or write."""
    return pick.choice(INDICES).format(inner or index(pick, "i"))


def value(pick: random.Random) -> str:
    """Value that is stored or added."""
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
    """Stand-in for `ti` in numpy."""

    @staticmethod
    def select(c: bool, a: float, b: float) -> float:
        """One of two numbers."""
        return a if c else b


def compile_serial(body: str) -> Callable[..., None]:
    """The program as a function of its arrays and of the orders of its loops."""
    parts = body.split("for i in range(8):")
    text = parts[0] + "".join(
        f"for i in orders[{k}]:{part}" for k, part in enumerate(parts[1:])
    )  # fmt: skip
    names = ", ".join((*FLOATS, *INTEGERS, "loss", "orders"))
    space: dict[str, Any] = {"ti": Serial}
    exec(f"def run({names}):\n" + text.replace("loss[None]", "loss[0]"), space)
    run: Callable[..., None] = space["run"]
    return run
