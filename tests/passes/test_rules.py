"""Every row of the rule tables means the same before and after, by the op table's numpy meaning.

An EXACT row must agree bit for bit on edge values (any NaN is any NaN); one that may change zeros
must agree as numbers; one wrong for NaN on all else; an INEXACT one nearly, on ordinary numbers.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.ops.cases import edge_values, same_bits
from vkchi.ir.core import value_of
from vkchi.ir.interp import evaluate
from vkchi.opt.rewrite.algebraic_rules import ROWS, Exactness, RuleRow
from vkchi.opt.rewrite.match import PatternNode, is_number, number_attr, orders, parse
from vkchi.types import SCALARS, Scalar, f32, i32, u1

COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
MOST = 8  # values per letter
TYPES = {"i": ("i8", "i32"), "u": ("u8", "u32"), "f": ("f32", "f64"), "b": ("u1",)}
POWERS = {"i": (1, 2, 8, 64), "u": (1, 2, 8, 128), "f": (0.25, 1.0, -2.0, 1024.0)}
CASES = [(row, SCALARS[t]) for row in ROWS for k in row.kinds for t in TYPES[k]]


def operand_type(node: PatternNode, t: Scalar) -> Scalar:
    """Operand type of a comparison: as a letter in it says, else t."""
    for leaf in node.operands:
        kinds = leaf.head.partition(":")[2]
        if kinds:
            return f32 if kinds == "f" else i32
    return t


def letters(node: PatternNode, t: Scalar) -> dict[str, Scalar]:
    """The letters of a pattern and their types, where the node has type (or compares) t."""
    if not node.operands:
        return {} if is_number(node) else {node.head.partition(":")[0]: t}
    found: dict[str, Scalar] = {}
    for k, operand in enumerate(node.operands):
        found |= letters(operand, operand_types(node, t)[k])
    return found


def operand_types(node: PatternNode, t: Scalar) -> list[Scalar]:
    if node.head == "select":
        return [u1, t, t]
    return [operand_type(node, t)] * len(node.operands)


def compute(node: PatternNode, t: Scalar, env: dict[str, Any], near: Scalar) -> Any:
    """The node's value: of type t, or a bool made of such."""
    if is_number(node):
        return value_of(number_attr(node.head, t), t)
    if not node.operands:
        return env[node.head.partition(":")[0]]
    types = operand_types(node, near if node.head in COMPARISONS else t)
    args = [compute(n, s, env, near) for n, s in zip(node.operands, types)]
    return evaluate(node.head, args, None, u1 if node.head in COMPARISONS else types[-1])


def choices(letter: str, t: Scalar, row: RuleRow) -> list[Any]:
    """Values to try for a letter."""
    if letter == "P":
        return [t.dtype.type(v) for v in POWERS[t.kind]]
    if row.exactness is Exactness.INEXACT and t.kind == "f":
        return [t.dtype.type(v) for v in (0.5, 1.25, 2.0, 3.75)]
    values = edge_values(t)
    return values[:: max(1, len(values) // MOST)]


def is_excluded(row: RuleRow, values: tuple[Any, ...]) -> bool:
    """Inputs that the row says nothing about."""
    floats = [v for v in values if v.dtype.kind == "f"]
    return row.exactness is Exactness.NNAN and not all(map(np.isfinite, floats))


def agree(row: RuleRow, a: Any, b: Any) -> bool:
    if row.exactness is Exactness.INEXACT and a.dtype.kind == "f":
        return bool(np.isclose(a, b, rtol=1e-3 if a.dtype == np.float16 else 1e-5))
    if row.exactness is Exactness.NSZ:
        return bool(a == b or (np.isnan(a) and np.isnan(b)))
    return bool(same_bits(np.asarray(a), np.asarray(b)))


def name_of(case: tuple[RuleRow, Scalar]) -> str:
    return f"{case[0].pattern}={case[0].result}-{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rule_row_preserves_meaning(case: tuple[RuleRow, Scalar]) -> None:
    row, t = case
    pattern, result = parse(row.pattern), parse(row.result)
    near = next((operand_type(n, t) for n in nodes(pattern) if n.head in COMPARISONS), t)
    root = u1 if pattern.head in COMPARISONS else t
    types = letters(pattern, t)
    with np.errstate(all="ignore"):
        for values in itertools.product(*(choices(k, s, row) for k, s in types.items())):
            if is_excluded(row, values):
                continue
            env = dict(zip(types, values))
            want = compute(pattern, t, env, near)
            got = compute(result, root, env, near)
            assert got.dtype == want.dtype
            assert agree(row, got, want), (env, got, want)


def nodes(node: PatternNode) -> list[PatternNode]:
    return [node, *(inner for n in node.operands for inner in nodes(n))]


def test_rows_are_distinct() -> None:
    patterns = [
        (kind, order)
        for row in ROWS
        for kind in row.kinds
        for order in dict.fromkeys(orders(parse(row.pattern)))
    ]
    assert [p for p in patterns if patterns.count(p) > 1] == []


def test_floats_are_exact_unless_said() -> None:
    assert all(row.exactness is Exactness.EXACT for row in ROWS if not set(row.kinds) & set("fb"))
