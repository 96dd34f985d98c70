"""Values that pass `expand_scalars` stores have types that the device can store, and few bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from vkchi.ir.core import Func
from vkchi.ir.text import parse
from vkchi.opt.loops.scatter import expand
from vkchi.opt.pipeline import CPU
from vkchi.target import tuning

NORM = Path(__file__).parents[1] / "golden" / "passes" / "expand" / "norm.chi"


def norm(scalar: str) -> Func:
    """The golden, for numbers of a type."""
    text, _ = NORM.read_text().split("; expect:\n")
    (fn,) = parse(text.replace("f32", scalar)).funcs
    return fn


@pytest.mark.parametrize(("scalar", "need"), [("f16", "storage16"), ("f64", "float64")])
def test_types_of_arrays_in_memory(scalar: str, need: str) -> None:
    """A device may compute with a type that it cannot store."""
    fn = norm(scalar)
    assert expand.expand_scalars(fn, CPU) is not fn
    assert expand.expand_scalars(fn, CPU._replace(**{need: False})) is fn


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a loop passes on, together."""
    fn, bytes_of_all = norm("f32"), 4 * (96 + 2 * 96 * 90)
    monkeypatch.setattr(tuning, "EXPAND_BYTES", bytes_of_all)
    assert expand.expand_scalars(fn, CPU) is not fn
    monkeypatch.setattr(tuning, "EXPAND_BYTES", bytes_of_all - 1)
    assert expand.expand_scalars(fn, CPU) is fn
