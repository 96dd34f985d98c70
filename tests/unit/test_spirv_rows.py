"""Every row of the op table, in every type, is emitted as a module that spirv-val accepts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.ops.cases import build_func, signatures
from tests.spirv_tools import find_tool, validate
from vkchi.errors import InternalError
from vkchi.opt.lowering.legalize import MAY_BE_WHOLE, expansions
from vkchi.opt.math import f64_math, quotient
from vkchi.opt.math.arithmetic import FORMULAS
from vkchi.opt.pipeline import lower_dispatch
from vkchi.spirv import dispatch, emit
from vkchi.target.caps import FULL
from vkchi.target.shader import row_grid
from vkchi.types import Scalar, u1

GRID = row_grid(("dim", "out", 0), 64, guard=True)
SHAPES = ((), (3,), (2, 3))
SIGNATURES = list(signatures())
# Ops that `legalize` expands on every device; of these, ops without an instruction.
EXPANDED = {(kind, name) for kind, name, space in expansions(FULL) if not space}
EXPANDED = {(kind, name) for kind, name in EXPANDED if kind not in MAY_BE_WHOLE}
REFUSED = {(kind, "f64") for kind in f64_math.FUNCTIONS}
REFUSED |= {(kind, name) for kind in quotient.FUNCTIONS for name in ("f16", "f32", "f64")}
REFUSED |= {(kind, name) for kind in ("popcnt", "clz") for name in ("u8", "i16", "i64")}

needs_validator = pytest.mark.skipif(find_tool("spirv-val") is None, reason="no spirv-val")


def types_of(kind: str) -> list[tuple[Scalar, ...]]:
    found = [types for name, types in SIGNATURES if name == kind]
    return [types for types in found if (kind, types[0].name) not in EXPANDED]


@needs_validator
@pytest.mark.parametrize("kind", sorted({kind for kind, _ in SIGNATURES}))
def test_elementwise_row_emits_valid_module(kind: str) -> None:
    words = {}
    for types in types_of(kind):
        for shape in SHAPES:
            shader = emit(lower_dispatch(build_func(kind, types, shape), FULL), GRID, FULL, kind)
            words.setdefault(shader.words, f"{kind} of {types} as {shape}")
    with ThreadPoolExecutor(2) as pool:
        messages = [f"{words[w]}: {m}" for w, m in zip(words, pool.map(validate, words)) if m]
    assert not messages, "\n".join(messages)


@pytest.mark.parametrize(("kind", "name"), sorted(REFUSED))
def test_unexpanded_ops_raise(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_VERIFY", "0")  # the emitter raises, not the check of the form
    types = next(ts for k, ts in SIGNATURES if (k, ts[0].name) == (kind, name))
    with pytest.raises(InternalError, match="replace"):
        emit(lower_dispatch(build_func(kind, types), FULL), GRID, FULL, kind)


def test_every_row_has_every_type_that_its_signature_takes() -> None:
    """An instruction, or a formula of `arithmetic` or `legalize`; `u1` is in SIMPLE alone."""
    lacking = []
    for kind, types in SIGNATURES:
        t = types[0]
        chosen = ("select", "stop_grad", "stop_first_grad", "undefined_slope", "with_derivative_of")
        if kind in (*chosen, "cast", "bitcast"):
            continue
        has_formula = (kind, t.name) in EXPANDED or (kind, t.name) in FORMULAS
        has_row = (kind, t.kind) in dispatch.GLSL or kind in ("popcnt", "clz")
        if not ((kind, t.kind) in dispatch.SIMPLE or has_formula or (t is not u1 and has_row)):
            lacking.append(f"{kind} of {t}")
    assert not lacking
