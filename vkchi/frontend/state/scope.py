"""Scopes: variables, the lexical blocks that hold them, and one activation per inlined call.

A name first assigned in an `if` or loop ends with that block. An activation also has the flags that
`break`, `continue` and `return` set. `ActiveCells` are facts about cells of sparse blocks.

    act.declare(Var("x", v, VARIABLE, depth, span)); act.find("x")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from vkchi.frontend.syntax.source import Source
from vkchi.ir.core import Value
from vkchi.span import Span
from vkchi.tuples import NamedTuple

VARIABLE = "variable"
ARGUMENT = "kernel argument"
CONSTANT = "compile-time value"
REFERENCE = "value passed by reference"
PASSED = "argument of a Python function"
SHARED = "another name of what a variable holds"
CHANGING = (VARIABLE, PASSED, SHARED)  # kinds whose value can change later
# Reasons for which all loops of a function are serial.
CONDITIONAL = "it runs under a condition, and only loops that always run are parallel"
REAL = "loops of real functions are serial"


class Unset:
    """Type of UNSET: the result of a function before any `return`."""


UNSET = Unset()


class Var:
    """A name and its compile-time value.

    The value of a VARIABLE is a kernel value, a container with kernel values, or a Target that the
    name aliases. `depth` counts the regions that were open at the declaration.
    """

    __slots__ = ("depth", "kind", "name", "span", "value")

    def __init__(
        self, name: str, value: Any, kind: str, depth: int, span: Span | None = None
    ) -> None:
        self.name, self.value, self.kind, self.depth, self.span = name, value, kind, depth, span


class LoopScope:
    """A loop being lowered. The values of the flags `broken` and `continued` are False, True or a
    u1."""

    __slots__ = ("broken", "continued")

    def __init__(self, depth: int) -> None:
        self.broken = Var("break", False, VARIABLE, depth)
        self.continued = Var("continue", False, VARIABLE, depth)


class Activation:
    """A function being lowered: the kernel, or one call of an inlined function.

    - `outer`: the caller's activation
    - `gone`: spans at which names of closed blocks were declared, for messages
    - `returned`, `result`: set by `return`
    - `why_serial`: the reason that no loop in it is parallel, or ""
    - `is_plain`: a Python function without a decorator; an assignment may change a variable's
      type
    - `repeats`: in a real function's outermost call, number of calls of it inside, at any depth
    """

    __slots__ = (
        "blocks", "caller", "depth", "fn", "gone", "is_kernel", "is_plain", "loops", "outer",
        "repeats", "result", "returned", "returns", "source", "why_serial",
    )  # fmt: skip

    def __init__(
        self,
        fn: FunctionType,
        source: Source,
        caller: Span | None,
        depth: int,
        *,
        is_kernel: bool,
        outer: Activation | None = None,
    ) -> None:
        self.fn, self.source, self.caller, self.depth = fn, source, caller, depth
        self.is_kernel, self.outer = is_kernel, outer
        self.is_plain = False
        self.why_serial: str = outer.why_serial if outer is not None else ""
        self.blocks: list[dict[str, Var]] = [{}]
        self.gone: dict[str, Span] = {}
        self.loops: list[LoopScope] = []
        self.returned = Var("returned", False, VARIABLE, depth)
        self.result = Var("result", UNSET, VARIABLE, depth)
        self.returns: Any = None
        self.repeats = 0

    def find(self, name: str) -> Var | None:
        for block in reversed(self.blocks):
            var = block.get(name)
            if var is not None:
                return var
        return None

    def declare(self, var: Var) -> Var:
        self.blocks[-1][var.name] = var
        return var

    @contextmanager
    def block(self) -> Iterator[None]:
        """Context with a new innermost block; at its end the names are dropped, and noted in
        `gone`."""
        block: dict[str, Var] = {}
        self.blocks.append(block)
        try:
            yield
        finally:
            self.blocks.pop()
            for name, var in block.items():
                if var.span is not None:
                    self.gone[name] = var.span

    @contextmanager
    def loop(self, loop: LoopScope) -> Iterator[None]:
        """Context of a loop's body: `break` and `continue` refer to this loop."""
        self.loops.append(loop)
        try:
            yield
        finally:
            self.loops.pop()

    def flags(self) -> list[Var]:
        """Return the flags that skip the code that follows: `returned`, and those of the innermost
        loop."""
        if not self.loops:
            return [self.returned]
        return [self.returned, self.loops[-1].broken, self.loops[-1].continued]


# --- cells of sparse blocks -----------------------------------------------------------------------


class ActiveElement(NamedTuple):
    """An element of a sparse block whose cells are active because a loop over its node is at it.

    `spot` is equal for nodes whose elements at equal indices are in the same cells. `depth` is the
    loop depth: iterations of an inner loop may come after a deactivation, so the fact does not hold
    there.
    """

    spot: Any
    indices: tuple[Value, ...]
    act: Activation
    depth: int


class ActiveCells:
    """Activity facts of the current loop.

    - `known`: elements that are known to be active
    - `passive`: blocks whose cells writes do not activate (`ti.no_activate`)
    - `marked`: blocks whose activity numbers the loop may change
    - `is_own`: true in code about cells itself, which neither checks nor marks cells
    """

    __slots__ = ("is_own", "known", "marked", "passive")

    def __init__(self) -> None:
        self.is_own = False
        self.known: tuple[ActiveElement, ...] = ()
        self.marked: set[Any] = set()
        self.passive: frozenset[Any] = frozenset()

    @contextmanager
    def leaving(self, blocks: frozenset[Any]) -> Iterator[None]:
        """Do not activate cells of these blocks inside this context."""
        outer = self.passive
        self.passive = outer | blocks
        try:
            yield
        finally:
            self.passive = outer

    def is_known(self, act: Activation, node: Any, indices: Sequence[Value]) -> bool:
        return ActiveElement(node.spot, tuple(indices), act, len(act.loops)) in self.known

    @contextmanager
    def at(self, act: Activation, node: Any, indices: Sequence[Value]) -> Iterator[None]:
        """Assume this element's cells active while the body of a loop over the node is lowered.

        Facts of outer loops hold again afterwards, unless the body dropped all facts.
        """
        outer = self.known
        self.known = inner = (*outer, ActiveElement(node.spot, tuple(indices), act, len(act.loops)))
        yield
        self.known = outer if self.known is inner else ()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Neither check nor mark cells inside this context."""
        outer, self.is_own = self.is_own, True
        yield
        self.is_own = outer
