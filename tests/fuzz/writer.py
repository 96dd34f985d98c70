"""Writers of random programs as Python source: lines, blocks, branches, expressions.

A module of programs defines the expressions and statements; here is how they are put
together, one in another. Every choice is drawn from `r`, in the order in which text is written, so
that a seed gives one program for good.

    class Writer(Frame):
        def expression(self, kind, depth): ...    # `self.fill(text, depth)` for its parts
        def statement(self, depth, exits): ...    # `self.line`, `self.branch`, `self.block`
"""

from __future__ import annotations

import random
from collections.abc import Sequence


class Frame:
    """Writes source in `lines`. `loops`: how many there were, which gives each a counter. `exits`,
    wherever that is asked for: the statements that leave the constructs around a statement."""

    longest = 3  # block, in statements
    deepest = 1  # condition of an `if`
    elifs = 0.3  # of branches that have one; None: there are none

    def __init__(self, seed: int | str) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a kind."""
        raise NotImplementedError

    def statement(self, depth: int, exits: Sequence[str]) -> None:
        """One statement, with its parts."""
        raise NotImplementedError

    def fill(self, text: str, depth: int) -> str:
        """The text, with expressions in place of the kinds in braces."""
        parts = text.replace("}", "{").split("{")
        return "".join(self.expression(p, depth) if k % 2 else p for k, p in enumerate(parts))

    def block(self, depth: int, exits: Sequence[str]) -> None:
        for _ in range(self.r.randrange(1, self.longest + 1)):
            self.statement(depth, exits)

    def branch(self, depth: int, exits: Sequence[str]) -> None:
        """`if`, perhaps with `elif` and `else`."""
        self.line(depth, f"if {self.expression('t', self.deepest)}:")
        self.block(depth + 1, exits)
        if self.elifs is not None and self.r.random() < self.elifs:
            self.line(depth, f"elif {self.expression('t', 1)}:")
            self.block(depth + 1, exits)
        if self.r.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, exits)

    def leave(self, depth: int, exits: Sequence[str]) -> None:
        """On a condition."""
        self.line(depth, f"if {self.expression('t', self.deepest)}:")
        self.line(depth + 1, self.r.choice(exits))

    def counter(self) -> str:
        """The name of another loop's."""
        self.loops += 1
        return f"j{self.loops}"

    def count(self, depth: int, j: str, most: int) -> None:
        """The head of a `while` that ends after so many rounds, or before."""
        self.line(depth, f"{j} = 0")
        self.line(depth, f"while {j} < {most} and ({self.expression('t', 1)}):")
        self.line(depth + 1, f"{j} += 1")
