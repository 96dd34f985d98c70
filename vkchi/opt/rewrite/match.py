"""Pattern language of `algebraic_rules`: compiles rows of text to functions that match and build
values.

A pattern is an op with operands: `sub (add x y) x`.

- Lower-case letters match any value; equal letters match the same value or equal constants.
- `x:iu` restricts the scalar kind of `x`.
- `C` and `D` match constants, `P` a constant power of two.
- A number matches a constant of that value (in every component of a tensor).
- Operands of commutative ops match in either order, unless the pattern of one is a constant. Then
  they match only in the order of the pattern.

A result is a letter, a number or an op to build. A number in it takes the type of the op's first
other operand; alone, that of the matched op.

    >>> [rule] = compile_row("iu", "sub x x", "0")
    >>> rule.kind, rule.needs
    ('sub', ('', ''))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from vkchi.ir import core as ir
from vkchi.ir.core import (
    Number,
    Op,
    Value,
    as_constant,
    constant_attr,
    is_equal_value,
    is_power_of_two,
    numeric_type_of,
)
from vkchi.ir.ops import COMMUTATIVE
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, Type, scalar_of

Env = dict[str, Value]
Matcher = Callable[[Value, Env], bool]


class RuleBuilder(Protocol):
    """Builder interface of rules.

    `emit` builds a simplified op, `result` the op that replaces the matched one, `const` a
    constant.
    """

    def emit(
        self, kind: str, *args: Value, attr: Any = None, type: Type | None = None
    ) -> Value: ...

    def result(
        self, kind: str, *args: Value, attr: Any = None, type: Type | None = None
    ) -> Value: ...

    def const(self, attr: Any, t: Type) -> Value: ...


Build = Callable[[RuleBuilder, Env, Type], Value]


class CompiledRule(NamedTuple):
    """A compiled row.

    `kinds` are the scalar kinds to which it applies. `needs` is the op kind required of each
    operand, "" for any. `operands` pairs operand numbers with matchers: numbers first, letters
    last.
    """

    kind: str
    kinds: str
    needs: tuple[str, ...]
    operands: tuple[tuple[int, Matcher], ...]
    build: Build

    def apply(self, s: RuleBuilder, args: Sequence[Value], attr: Any, t: Type) -> Value | None:
        env: Env = {}
        for k, match in self.operands:
            if not match(args[k], env):
                return None
        return self.build(s, env, t)


class PatternNode(NamedTuple):
    """A parsed pattern: an op with operands, or a leaf (letter or number)."""

    head: str
    operands: tuple[PatternNode, ...] = ()


def compile_row(kinds: str, pattern: str, result: str) -> list[CompiledRule]:
    """Return the rules of a row, one per order of commutative operands."""
    build = builder(parse(result), is_root=True)
    return [
        CompiledRule(n.head, kinds, tuple(map(need, n.operands)), ordered_matchers(n), build)
        for n in dict.fromkeys(orders(parse(pattern)))
    ]


def ordered_matchers(node: PatternNode) -> tuple[tuple[int, Matcher], ...]:
    numbered = sorted(
        enumerate(node.operands), key=lambda p: (not is_number(p[1]), need(p[1]) == "")
    )
    return tuple((k, matcher(n)) for k, n in numbered)


# --- parsing -----------------------------------------------------------------------------------


def parse(text: str) -> PatternNode:
    """Parse a pattern; the outermost op has no parentheses.

    Raises ValueError for empty parentheses, IndexError for empty text.
    """
    tokens = re.findall(r"[()]|[^\s()]+", text)
    nodes = list(read(iter(tokens)))
    if len(nodes) > 1:
        return PatternNode(nodes[0].head, tuple(nodes[1:]))
    return nodes[0]


def read(tokens: Iterator[str]) -> Iterator[PatternNode]:
    for token in tokens:
        if token == ")":
            return
        if token == "(":
            head, *operands = read(tokens)
            yield PatternNode(head.head, tuple(operands))
        else:
            yield PatternNode(token)


def orders(node: PatternNode) -> list[PatternNode]:
    """Return the pattern with its commutative ops in all operand orders. An op with a constant
    operand keeps its order."""
    combined: list[tuple[PatternNode, ...]] = [()]
    for operand in node.operands:
        combined = [(*before, new) for before in combined for new in orders(operand)]
    swap = node.head in COMMUTATIVE and not any(is_constant(n) for n in node.operands)
    both = [(b, a) for a, b in combined] if swap else []
    return [PatternNode(node.head, operands) for operands in (*combined, *both)]


def is_number(node: PatternNode) -> bool:
    return not node.operands and node.head[-1].isdigit()


def is_constant(node: PatternNode) -> bool:
    """True if the node matches only constants."""
    return is_number(node) or node.head in ("C", "D", "P")


def need(node: PatternNode) -> str:
    if is_constant(node):
        return "const"
    return node.head if node.operands else ""


# --- matching ----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def number_attr(text: str, t: Number) -> Any:
    return constant_attr(float(text) if scalar_of(t).kind == "f" else int(text), t)


def matcher(node: PatternNode) -> Matcher:
    """Compile a node to a function that matches a value and binds letters."""
    if is_number(node):
        return match_number(node.head)
    if node.operands:
        return match_op(node.head, tuple(map(matcher, node.operands)))
    letter, _, kinds = node.head.partition(":")
    if letter == "P":
        return lambda v, env: (
            ir.is_constant(v) and bind(env, "P", v) and is_power_of_two(as_constant(v))
        )
    if letter in "CD":
        return lambda v, env: ir.is_constant(v) and bind(env, letter, v)
    return lambda v, env: (not kinds or scalar_kind_of(v.type) in kinds) and bind(env, letter, v)


def bind(env: Env, letter: str, v: Value) -> bool:
    return is_equal_value(env.setdefault(letter, v), v)


def match_number(text: str) -> Matcher:
    def match(v: Value, env: Env) -> bool:
        return ir.is_constant(v) and v.attr == number_attr(text, numeric_type_of(v))

    return match


def match_op(kind: str, operands: tuple[Matcher, ...]) -> Matcher:
    def match(v: Value, env: Env) -> bool:
        if type(v) is not Op or v.kind != kind:
            return False
        return all(m(a, env) for m, a in zip(operands, v.args, strict=True))

    return match


def scalar_kind_of(t: Type) -> str:
    """Return the kind letter (i u f b) of a scalar type, or of a tensor type's components; "" for
    other types."""
    if isinstance(t, Scalar):
        return t.kind
    return t.elem.kind if isinstance(t, Tensor) else ""


# --- building ----------------------------------------------------------------------------------


def builder(node: PatternNode, *, is_root: bool = False) -> Build:
    """Compile a result, or an op in it, to a function that builds its value."""
    if is_number(node):
        return lambda s, env, t: s.const(number_attr(node.head, t), t)
    if not node.operands:
        return lambda s, env, t: env[node.head]
    numbers = [is_number(n) for n in node.operands]
    parts = list(map(builder, node.operands))

    def build(s: RuleBuilder, env: Env, t: Type) -> Value:
        args: list[Any] = [
            None if late else part(s, env, t) for part, late in zip(parts, numbers, strict=True)
        ]
        near = next((v.type for v in args if v is not None), t)
        args = [part(s, env, near) if v is None else v for part, v in zip(parts, args, strict=True)]
        make = s.result if is_root else s.emit
        return make(node.head, *args)

    return build
