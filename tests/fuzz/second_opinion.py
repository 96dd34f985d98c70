"""Comparison of a program's loss and gradients with plain Python's on dual numbers.

Gradients come from a tape, from a tape with limited memory, and from forward mode. Initial contents
near kinks are skipped.

    check(text, seed, World(fields, inputs, contents, memory=1000))    # `drive()` sets `loss`
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.duals import Dual, Kink, Memory, Vector
from tests.fuzz.duals import define as define_plain

ATTEMPTS = 6  # at contents that are not near a kink
STEEPEST = 1e4  # a program with larger gradients says more about rounding
Arrays = dict[str, Any]


class World(NamedTuple):
    """Fields by name, `loss` among them; `inputs`: names of the fields to take gradients by.

    `contents(seed)` gives initial contents; `memory` is the limit in bytes of the second tape.
    """

    fields: Arrays
    inputs: tuple[str, ...]
    contents: Callable[[int], Arrays]
    memory: int


def evaluate(text: str, world: World, first: Arrays) -> tuple[float, Arrays]:
    """The loss and its gradients by the inputs, computed on dual numbers from the contents `first`.

    Raises Kink near a kink.
    """
    fields, inputs = world.fields, world.inputs
    sizes = [first[name].size for name in inputs]
    units = iter(np.eye(sum(sizes)))
    memory = {"loss": Memory([Dual(0.0)])}
    for name, values in first.items():
        shape = fields[name].shape
        if values.dtype.kind != "f":
            numbers: list[Any] = [int(k) for k in values.ravel()]
        else:
            numbers = [Dual(a, next(units) if name in inputs else 0.0) for a in values.ravel()]
        if isinstance(fields[name], ti.MatrixField):
            numbers = [Vector(part) for part in np.reshape(numbers, (*shape, -1))]
        memory[name] = Memory(numbers, shape if len(shape) > 1 else ())
    define_plain(text, memory)["drive"]()
    loss = memory["loss"][None]
    parts = np.split(loss.slope * np.ones(sum(sizes)), np.cumsum(sizes)[:-1])
    return loss.value, {k: p.reshape(first[k].shape) for k, p in zip(inputs, parts, strict=True)}


def evaluate_somewhere(text: str, seed: int, world: World) -> tuple[Arrays, float, Arrays] | None:
    """Contents with the loss and its gradients, the first of ATTEMPTS that suit; else None.

    Contents do not suit if plain Python fails or comes near a kink, or a gradient reaches STEEPEST.
    """
    for attempt in range(ATTEMPTS):
        first = world.contents(ATTEMPTS * seed + attempt)
        try:
            loss, gradients = evaluate(text, world, first)
        except (Kink, ArithmeticError, ValueError):
            continue
        if all(np.abs(g).max() < STEEPEST for g in gradients.values()):
            return first, loss, gradients
    return None


def define(text: str, seed: int, fields: Arrays) -> Any:
    """The function `drive` of the program, compiled with these fields."""
    file = f"<program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"ti": ti, **fields}
    exec(compile(text, file, "exec"), names)
    return names["drive"]


def put(fields: Arrays, first: Arrays) -> None:
    """Set the fields to the contents `first`, and `loss` to 0."""
    for name, values in first.items():
        fields[name].from_numpy(values)
    fields["loss"].fill(0)


def check(text: str, seed: int, world: World) -> None:
    """Check loss and gradients of two tapes, and the slope in forward mode along one input.

    Skips the test where `evaluate_somewhere` finds no contents.
    """
    found, fields = evaluate_somewhere(text, seed, world), world.fields
    if found is None:
        pytest.skip("near kinks, or too steep")
    first, loss, gradients = found
    drive = define(text, seed, fields)
    scale = max(1.0, *(np.abs(g).max() for g in gradients.values()))
    for limit in (None, world.memory):
        put(fields, first)
        with ti.ad.Tape(fields["loss"], memory=limit):
            drive()
        assert fields["loss"][None] == pytest.approx(loss, rel=1e-9, abs=1e-9)
        for name, want in gradients.items():
            got, message = fields[name].grad.to_numpy(), f"seed {seed}: {name}, {limit} bytes"
            np.testing.assert_allclose(got / scale, want / scale, 1e-7, 1e-7, err_msg=message)
    name = list(gradients)[seed % len(gradients)]
    along = np.random.default_rng(seed).normal(size=first[name].shape)
    put(fields, first)
    with ti.ad.FwdMode(loss=fields["loss"], param=fields[name], seed=list(along.ravel())):
        drive()
    slope = float(np.sum(gradients[name] * along))
    assert fields["loss"].dual[None] / scale == pytest.approx(slope / scale, rel=1e-7, abs=1e-7)
