"""Progress bars on a terminal: the operations that have one, and their steps."""

from __future__ import annotations

import re

import pytest

import vkchi as ti
from vkchi import progress


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Output to a terminal, without colours, on which bars are drawn at every step."""
    lines: list[str] = []
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "PAUSE_S", 0.0)
    monkeypatch.setattr(progress, "write", lambda text: lines.append(
        re.sub(r"\x1b\[[0-9;]*m", "", text)))  # fmt: skip
    return lines


def test_gradients_in_limited_memory(said: list[str]) -> None:
    x = ti.field(ti.f32, 1000, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.fill(1)
    with ti.ad.Tape(loss, memory="16KiB"):
        for _ in range(9):
            step()
        total()
    assert x.grad[0] == 512
    counts = [
        int(m[1]) for line in said if (m := re.search(r"gradients of calls.* (\d+)/10", line))
    ]
    assert counts == list(range(1, 11))


def test_verify_progress(said: list[str]) -> None:
    x = ti.field(ti.i32, 40)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = i

    ti.verify(fill)
    assert len(said) > 40 and "verify: fill(), numbers that the reference wrote" in said[10]


def test_finite_difference_progress(said: list[str]) -> None:
    x = ti.field(ti.f32, (3, 4), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def total():
        for k in ti.grouped(x):
            loss[None] += x[k] * x[k]

    x.fill(1)
    with ti.ad.Tape(loss, grad_check=[x]):
        total()
    assert any("differences" in line and "12/12" in line for line in said)


def test_short_work_shows_no_bar(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 1.0)
    assert list(progress.track(range(1000), "work")) == list(range(1000))
    assert said == []
