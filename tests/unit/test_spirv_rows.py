"""Every row of the op table, in every type, is emitted as a module that spirv-val accepts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.ops.cases import build_func, signatures
from vkchi.caps import FULL
from vkchi.errors import InternalError
from vkchi.passes import f64_math
from vkchi.shader import Grid
from vkchi.spirv import arith, emit
from vkchi.spirv.tools import find_tool, validate
from vkchi.types import Scalar, f64, u1

GRID = Grid("exact", 64, ("dim", "out", 0), True)
SHAPES = ((), (3,), (2, 3))
SIGNATURES = list(signatures())
# What GLSL.std.450 does not have in 64 bits, or devices get wrong; legalize expands it before.
NOT_IN_F64 = frozenset(f64_math.FUNCTIONS)

needs_validator = pytest.mark.skipif(find_tool("spirv-val") is None, reason="no spirv-val")


def types_of(kind: str) -> list[tuple[Scalar, ...]]:
    found = [types for name, types in SIGNATURES if name == kind]
    return [types for types in found if not (kind in NOT_IN_F64 and types[0] is f64)]


@needs_validator
@pytest.mark.parametrize("kind", sorted({kind for kind, _ in SIGNATURES}))
def test_elementwise(kind: str) -> None:
    words = {}
    for types in types_of(kind):
        for shape in SHAPES:
            shader = emit(build_func(kind, types, shape), GRID, FULL, kind)
            words.setdefault(shader.words, f"{kind} of {types} as {shape}")
    with ThreadPoolExecutor(2) as pool:
        messages = [f"{words[w]}: {m}" for w, m in zip(words, pool.map(validate, words)) if m]
    assert not messages, "\n".join(messages)


@pytest.mark.parametrize("kind", sorted(NOT_IN_F64))
def test_what_has_no_f64_is_refused(kind: str) -> None:
    types = next(ts for name, ts in SIGNATURES if name == kind and ts[0] is f64)
    with pytest.raises(InternalError, match="legalize"):
        emit(build_func(kind, types), GRID, FULL, kind)


def test_every_row_has_every_type_that_its_signature_takes() -> None:
    """One instruction or formula for each; `u1` rows are in SIMPLE alone."""
    lacking = []
    for kind, types in SIGNATURES:
        if kind in ("select", "cast", "bitcast", "stop_grad", "frozen", "in_gradient"):
            continue
        t = types[0]
        simple = (kind, t.kind) in arith.SIMPLE
        formula = f"{kind}.{t.name}" in arith.FORMULAS or f"{kind}.{t.kind}" in arith.FORMULAS
        if not (simple or (t is not u1 and (formula or (kind, t.kind) in arith.GLSL))):
            lacking.append(f"{kind} of {t}")
    assert not lacking
