"""The tables that must have a row for every op of `ir/ops.py`; names the op and the file that was
forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vkchi.autodiff.rules import RULES
from vkchi.ir.ops import (  # fmt: skip
    ATOMICS,
    BITWISE,
    COMPARISONS,
    COMPONENTS,
    DIVISION_OF,
    DIVISIONS,
    ELEMENTWISE,
    EQUALITIES,
    EXTREMES,
    GREATER,
    IDEMPOTENT,
    LINEAR,
    MIRRORED,
    NEGATED,
    PLAIN_ACCESSES,
    READS,
    REMAINDER_OF,
    ROUNDED_DOWN,
    SUMS,
    SWAPS,
    TABLE,
    TIED,
    UPDATES,
    VARYING,
    WRITES,
    Effect,
    OpRow,
    Trait,
    kinds_with,
)
from vkchi.opt.lowering.legalize import expansions
from vkchi.opt.math.arithmetic import KINDS
from vkchi.spirv.dispatch import ROWS
from vkchi.target.caps import FULL
from vkchi.types import i32

# file -> the ops that it has a row for
TABLES: dict[str, Iterable[str]] = {
    "vkchi/spirv/dispatch.py": ROWS,
    "vkchi/autodiff/rules.py": RULES,
}
# Written in other ops before, in some type at least: `test_spirv_rows` looks at each.
LOWERED = {*kinds_with(Trait.LOWERED), *KINDS, *(kind for kind, _, _ in expansions(FULL))}


@pytest.mark.parametrize("file", TABLES)
def test_table_is_total(file: str) -> None:
    kinds = [kind for kind in TABLE if "spirv" not in file or kind not in LOWERED]
    forgotten = [f"{file} has no row for `{kind}`" for kind in kinds if kind not in TABLES[file]]
    assert not forgotten, "\n".join(forgotten)


@pytest.mark.parametrize("file", TABLES)
def test_table_knows_no_other_ops(file: str) -> None:
    unknown = [f"{file} has a row for `{kind}`, which ir/ops.py has not" for kind in TABLES[file]]
    assert not [text for kind, text in zip(TABLES[file], unknown) if kind not in TABLE]


def test_every_row_has_a_description() -> None:
    assert [row.name for row in TABLE.values() if not row.doc] == []


NUMBERS = (-7, -2, -1, 1, 2, 3, 12)


def has(row: OpRow, trait: int) -> bool:
    return bool(row.traits & trait)


def results(row: OpRow, numbers: Iterable[Any], dtype: Any) -> dict[tuple[Any, Any], Any]:
    assert row.numpy is not None
    pairs = product(np.array(list(numbers), dtype), repeat=2)
    with np.errstate(all="ignore"):
        return {(x, y): row.numpy(x, y) for x, y in pairs}


def dtype_of(row: OpRow) -> Any:
    return np.float64 if ":float" in row.sig else np.int32


BINARY = [r for k, r in TABLE.items() if k in ELEMENTWISE and r.numpy and r.sig.count("T") == 3]


@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_commutative_ops_are_marked(row: OpRow) -> None:
    if row.name == "with_derivative_of":
        return
    found = results(row, NUMBERS, dtype_of(row))
    assert has(row, Trait.COMMUTES) == all(found[x, y] == found[y, x] for x, y in found)


def test_comparisons_commute_where_they_are_symmetric() -> None:
    for kind in COMPARISONS:
        found = results(TABLE[kind], NUMBERS, np.int32)
        assert has(TABLE[kind], Trait.COMMUTES) == all(
            v == found[k[::-1]] for k, v in found.items()
        )


def test_binary_bool_ops_are_comparisons() -> None:
    made = {k for k, r in TABLE.items() if r.sig.endswith("B(T)") and r.sig.count(",") == 1}
    assert made == COMPARISONS


def test_divisions_are_of_integers_without_meaning_at_zero() -> None:
    assert kinds_with(Trait.REMAINDER) < DIVISIONS
    for kind in DIVISIONS:
        found = results(TABLE[kind], NUMBERS, np.int32)
        assert any(has(TABLE[kind], Trait.REMAINDER) == (abs(v) < abs(k[1]))
                   for k, v in found.items())  # fmt: skip


UNARY = [r for k, r in TABLE.items() if k in ELEMENTWISE and r.numpy and r.sig == "T:float -> T"]


@pytest.mark.parametrize("row", UNARY, ids=lambda row: row.name)
def test_ops_that_become_infinite(row: OpRow) -> None:
    plain = np.concatenate([np.linspace(-800, 800, 4001), np.linspace(-2, 2, 401), [np.pi / 2]])
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        made = not np.isfinite(row.numpy(plain)).all()
    assert not made or has(row, Trait.MAKES_NONFINITE)


INTEGER = [
    r for k, r in TABLE.items()
    if k in ELEMENTWISE and r.numpy and r.sig[:5] in ("T:num", "T:int", "T:bit", "T:any")
    and "B(T)" not in r.sig
]  # fmt: skip
SMALL = range(-4, 5)


def meaning_of(row: OpRow, dtype: Any) -> dict[tuple[int, ...], int]:
    """Results for small operands, but divisors of 0; those that wrap are left out."""
    count = row.sig.split("->")[0].count("T")
    grids = [x.reshape(-1) for x in np.meshgrid(*[np.array(SMALL, dtype)] * count, indexing="ij")]
    if row.traits & Trait.DIVIDES:
        grids = [x[grids[1] != 0] for x in grids]
    assert row.numpy is not None
    results = row.numpy(*grids)
    return {tuple(map(int, k)): int(v) for *k, v in zip(*grids, results)}


@pytest.mark.parametrize("row", INTEGER, ids=lambda row: row.name)
def test_every_op_of_integers_has_an_interval_that_holds(row: OpRow) -> None:
    found = meaning_of(row, np.int32)
    assert row.interval is not None
    spans = [(a, b) for a in SMALL for b in SMALL if a <= b][::3]
    for parts in product(spans, repeat=len(next(iter(found)))):
        claimed = row.interval(i32, *parts)
        inside = [v for k, v in found.items() if all(a <= n <= b for n, (a, b) in zip(k, parts))]
        if claimed is not None and inside:
            assert claimed[0] <= min(inside) and max(inside) <= claimed[1], (parts, claimed)


@pytest.mark.parametrize("row", INTEGER, ids=lambda row: row.name)
def test_monotone_ops_are_marked(row: OpRow) -> None:
    if row.name == "with_derivative_of":
        return
    found = meaning_of(row, np.int32)
    signs = ""
    for at in range(len(next(iter(found)))):
        steps = [found[n] - v for k, v in found.items()
                 if (n := (*k[:at], k[at] + 1, *k[at + 1 :])) in found]  # fmt: skip
        signs += "+" if min(steps) >= 0 else "-" if max(steps) <= 0 else "?"
    assert row.monotone == ("" if "?" in signs else signs)


@pytest.mark.parametrize("kind", sorted(kinds_with(Trait.RING)))
def test_rings_may_wrap_last(kind: str) -> None:
    far, meaning = np.array([3 * 256 + 5, -(2**40) + 7, 2**33 - 1], np.int64), TABLE[kind].numpy
    assert meaning is not None
    for operands in product(far, repeat=TABLE[kind].sig.split("->")[0].count("T")):
        first = meaning(*[np.array([x]).astype(np.int8) for x in operands])
        assert meaning(*[np.array([x]) for x in operands]).astype(np.int8) == first


def test_comparisons_have_an_opposite_and_a_mirror() -> None:
    assert NEGATED.keys() == MIRRORED.keys() == COMPARISONS
    for kind in COMPARISONS:
        found = results(TABLE[kind], NUMBERS, np.int32)
        opposite, mirror = (results(TABLE[k[kind]], NUMBERS, np.int32) for k in (NEGATED, MIRRORED))
        assert all(opposite[pair] != v for pair, v in found.items())
        assert all(mirror[pair[::-1]] == v for pair, v in found.items())


def test_extremes_are_the_atomics_that_keep_one_of_two() -> None:
    keep = {k for k, row in ATOMICS.items() if set(np.unique(row.numpy(NUMBERS, 2))) <= {*NUMBERS}}
    assert EXTREMES == keep


def test_repeated_idempotent_atomics_change_nothing() -> None:
    keep = set()
    for k, row in ATOMICS.items():
        once = row.numpy(NUMBERS, 6)
        if (row.numpy(once, 6) == once).all():
            keep.add(k)
    assert IDEMPOTENT == keep


def test_replacing_ops_only_write() -> None:
    assert kinds_with(Trait.REPLACES) == WRITES - ATOMICS.keys() - {"atomic_cas"}


def test_varying_ops_are_not_dispatch_uniform() -> None:
    """An invocation's own places and streams; dispatch-uniform ops are not among them."""
    own = kinds_with(Trait.PER_INVOCATION)
    assert VARYING - {"random", "has_iteration"} == {k for k in own if k.endswith("_index")}


def test_control_ops_say_how_they_are_made() -> None:
    for row in TABLE.values():
        assert (row.control is not None) == (row.effect is Effect.CONTROL and row.name != "yield")


TRAITS = [name for name in vars(Trait) if name.isupper() and name != "NONE"]


@pytest.mark.parametrize("name", TRAITS)
def test_no_trait_is_without_ops(name: str) -> None:
    assert kinds_with(getattr(Trait, name))


def test_each_trait_has_a_bit() -> None:
    assert [getattr(Trait, name) for name in TRAITS] == [1 << k for k in range(len(TRAITS))]


# --- columns that are traits ---------------------------------------------------------------------


def unary() -> list[OpRow]:
    """Ops of one number."""
    rows = [r for k, r in TABLE.items() if k in ELEMENTWISE and r.numpy]
    return [r for r in rows if r.sig.endswith("-> T") and r.sig.count("T") == 2]


def in_pairs(row: OpRow) -> dict[tuple[Any, Any], Any]:
    return results(row, NUMBERS, dtype_of(row))


@pytest.mark.parametrize("row", unary(), ids=lambda row: row.name)
def test_ops_of_zero(row: OpRow) -> None:
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        is_zero = bool(row.numpy(np.zeros(1, dtype_of(row)))[0] == 0)
    assert has(row, Trait.KEEPS_ZERO) == is_zero


@pytest.mark.parametrize("row", unary(), ids=lambda row: row.name)
def test_ops_that_contain_their_operand(row: OpRow) -> None:
    dtype = dtype_of(row)
    numbers = np.array([-7, -2, 1, 3, 12] if dtype is np.int32 else [-2.75, -0.5, 0.3, 1.5], dtype)
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        found = row.numpy(numbers)
    assert has(row, Trait.IDENTITY) == (found == numbers).all()
    assert has(row, Trait.CARRIES) == (np.abs(found) == np.abs(numbers)).all()
    if dtype is np.float64:
        assert has(row, Trait.ROUNDS) == (found == np.rint(found)).all()


@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_ops_that_contain_one_of_two_operands(row: OpRow) -> None:
    found = in_pairs(row)
    chosen = {all(v == f(*k) for k, v in found.items()) for f in (min, max)}
    assert has(row, Trait.CHOOSES) == (True in chosen)
    assert has(row, Trait.IDENTITY) == all(v == x for (x, _), v in found.items())
    carries = all(abs(v) in map(abs, k) for k, v in found.items())
    assert has(row, Trait.CARRIES) == carries


@pytest.mark.parametrize("row", INTEGER, ids=lambda row: row.name)
def test_factors_of_operands_stay(row: OpRow) -> None:
    found = {k: v for k, v in meaning_of(row, np.int32).items() if not any(n % 2 for n in k)}
    kept = all(v % 4 == 0 for k, v in found.items() if not any(n % 4 for n in k))
    assert not has(row, Trait.KEEPS_FACTORS) or (kept and not any(v % 2 for v in found.values()))


def test_logic_ops_map_bools_to_bools() -> None:
    bits = {k for k in ELEMENTWISE if TABLE[k].sig.startswith("T:bits")}
    assert kinds_with(Trait.LOGIC) == bits | {"select"}
    assert {*BITWISE, "not"} == bits


def test_other_kind_sets() -> None:
    assert kinds_with(Trait.COMPONENT) < kinds_with(Trait.PLACE)
    assert all(TABLE[k].infer.__name__.startswith("_member") for k in kinds_with(Trait.COMPONENT))
    syncs = {k for k, r in TABLE.items() if r.effect is Effect.SYNC}
    assert kinds_with(Trait.WAITLESS) < syncs
    assert not [k for k in kinds_with(Trait.WAITLESS) if k.startswith("subgroup") or "barrier" in k]
    owned = kinds_with(Trait.OWNED)
    assert all(TABLE[k].effect in (Effect.ALLOC, Effect.WRITE) for k in owned)
    assert TIED == owned | kinds_with(Trait.PER_INVOCATION)
    assert PLAIN_ACCESSES == {k for k in READS | WRITES if k not in UPDATES}
    assert SWAPS == {k for k in UPDATES if k not in ATOMICS}
    assert LINEAR == kinds_with(Trait.RING)
    assert EQUALITIES == {k for k in COMPARISONS if MIRRORED[k] == k}
    assert COMPONENTS == kinds_with(Trait.COMPONENT)


@pytest.mark.parametrize("kind", sorted(SUMS))
def test_sums_add_their_operands_with_these_signs(kind: str) -> None:
    f = TABLE[kind].numpy
    assert f is not None
    for numbers in product(NUMBERS, repeat=len(SUMS[kind])):
        args = [np.int32(n) for n in numbers]
        assert f(*args) == sum(s * n for s, n in zip(SUMS[kind], numbers))


def test_kinds_that_belong_to_kinds() -> None:
    for quotient, remainder in REMAINDER_OF.items():
        q, r = (results(TABLE[k], NUMBERS, np.int32) for k in (quotient, remainder))
        assert all(q[x, y] * y + r[x, y] == x for x, y in q)
    for kind, down in ROUNDED_DOWN.items():
        a, b = (results(TABLE[k], [n for n in NUMBERS if n > 0], np.int32) for k in (kind, down))
        assert a == b
    for rounding, division in DIVISION_OF.items():
        found = results(TABLE[division], NUMBERS, np.int32)
        f = TABLE[rounding].numpy
        assert f is not None
        assert all(v == f(np.float64(x) / y) for (x, y), v in found.items())
    for kind, k in GREATER.items():
        found = results(TABLE[kind], NUMBERS, np.int32)
        assert all(v == (pair[k] > pair[1 - k]) for pair, v in found.items() if len(set(pair)) > 1)


def test_every_inexact_function_is_in_the_table_of_errors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "numbers.md").read_text(encoding="utf-8")
    table = page.split("## Errors of f32 functions")[1].split("\n\n- ")[0]
    signs = {"div": "/", "pow": "x ** 2.5"}
    exact = {row.name for row in TABLE.values() if row.traits & (Trait.ROUNDS | Trait.IDENTITY)}
    inexact = [
        kind for kind in sorted(ELEMENTWISE - exact)
        if TABLE[kind].sig.startswith("T:float") and TABLE[kind].sig.endswith("-> T")
    ]  # fmt: skip
    assert {"atan", "cosh", "div", "exp2", "pow", "sqrt"} <= set(inexact)
    missing = [
        k for k in inexact if not re.search(rf"`{re.escape(signs.get(k, k))}(\(x\))?`", table)
    ]
    assert missing == []
