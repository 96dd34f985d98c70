"""Base of the writers of random programs as Python source: lines, blocks, branches, expressions.

A subclass defines the expressions and statements. All choices come from `r`, so a seed always gives
the same program.

    class Writer(Frame):
        def expression(self, kind, depth): ...    # `self.fill(text, depth)` for its parts
        def statement(self, depth, exits): ...    # `self.line`, `self.branch`, `self.block`
"""

from __future__ import annotations

import random
from collections.abc import Sequence


class Frame:
    """Writer of source into `lines`. `loops` counts the loops, for unique names of counters.

    Parameters `exits` are the statements (`break`, `continue`) permitted at that place; `depth` of
    a statement is its indentation.
    """

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
        """The text of a random expression of a kind."""
        raise NotImplementedError

    def statement(self, depth: int, exits: Sequence[str]) -> None:
        """Append a random statement with its parts."""
        raise NotImplementedError

    def fill(self, text: str, depth: int) -> str:
        """The text, with each `{kind}` replaced by an expression of that kind."""
        parts = text.replace("}", "{").split("{")
        return "".join(self.expression(p, depth) if k % 2 else p for k, p in enumerate(parts))

    def block(self, depth: int, exits: Sequence[str]) -> None:
        for _ in range(self.r.randrange(1, self.longest + 1)):
            self.statement(depth, exits)

    def branch(self, depth: int, exits: Sequence[str]) -> None:
        """Append an `if`, perhaps with `elif` and `else`."""
        self.line(depth, f"if {self.expression('t', self.deepest)}:")
        self.block(depth + 1, exits)
        if self.elifs is not None and self.r.random() < self.elifs:
            self.line(depth, f"elif {self.expression('t', 1)}:")
            self.block(depth + 1, exits)
        if self.r.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, exits)

    def leave(self, depth: int, exits: Sequence[str]) -> None:
        """Append an `if` with one of `exits`."""
        self.line(depth, f"if {self.expression('t', self.deepest)}:")
        self.line(depth + 1, self.r.choice(exits))

    def counter(self) -> str:
        """A new name for the counter of a loop."""
        self.loops += 1
        return f"j{self.loops}"

    def count(self, depth: int, j: str, most: int) -> None:
        """Append the head of a `while` of at most `most` iterations, with a further condition."""
        self.line(depth, f"{j} = 0")
        self.line(depth, f"while {j} < {most} and ({self.expression('t', 1)}):")
        self.line(depth + 1, f"{j} += 1")
