"""Checks that `ti.init` relaxes on request: arrays without gradients, and races."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import vkchi as ti

START = [1.0, 2.0, 3.0, 4.0]


pytestmark = pytest.mark.usefixtures("own_runtime")


def make():
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array(START, np.float32))
    return x, loss, ti.field(ti.f32, 4)


def test_a_constant_in_one_kernel() -> None:
    ti.init(missing_gradient="warn")
    x, loss, v = make()

    @ti.kernel
    def run():
        for i in x:
            v[i] = 2 * x[i]
        for i in x:
            loss[None] += v[i] * x[i]

    for turn in range(2):
        with warnings.catch_warnings(record=True) as told, ti.ad.Tape(loss):
            warnings.simplefilter("default")
            run()
        np.testing.assert_allclose(x.grad.to_numpy(), 2 * np.array(START))
        ours = [w for w in told if "flows through `v`, which has none" in str(w.message)]
        assert len(ours) == (turn == 0) and all(
            w.category.__name__ == "GradientWarning" for w in ours
        )


def test_a_constant_between_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_MISSING_GRADIENT", "warn")
    ti.init()
    x, loss, v = make()

    @ti.kernel
    def first():
        for i in x:
            v[i] = x[i]

    @ti.kernel
    def second():
        for i in x:
            loss[None] += v[i] * x[i]

    with pytest.warns(RuntimeWarning, match="counts as constant"), ti.ad.Tape(loss):
        first()
        second()
    np.testing.assert_allclose(x.grad.to_numpy(), START)


def test_a_constant_in_forward_mode() -> None:
    ti.init(missing_gradient="warn")
    x, loss = ti.field(ti.f32, 4, needs_dual=True), ti.field(ti.f32, (), needs_dual=True)
    v = ti.field(ti.f32, 4)
    x.from_numpy(np.array(START, np.float32))

    @ti.kernel
    def run():
        for i in x:
            v[i] = 2 * x[i]
        for i in x:
            loss[None] += v[i] * x[i]

    with pytest.warns(RuntimeWarning, match="which has none"):
        with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0, 1]):
            run()
    assert loss.dual[None] == 10


def test_bits_raise_even_without_checks() -> None:
    ti.init(missing_gradient="warn")
    x, loss, _ = make()
    v = ti.field(ti.i32, 4)

    @ti.kernel
    def first():
        for i in x:
            v[i] = ti.bit_cast(x[i], ti.i32)

    @ti.kernel
    def second():
        for i in x:
            loss[None] += ti.bit_cast(v[i], ti.f32)

    with pytest.raises(ti.ad.GradientError, match="bits"), ti.ad.Tape(loss):
        first()
        second()


@pytest.mark.parametrize("how", [["scatter", "other"], "other,scatter"])
def test_races_of_kernels_that_are_named(how) -> None:
    ti.init(accept_races=how)
    x, loss, _ = make()
    y = ti.field(ti.f32, 2, needs_grad=True)

    def program(scatter) -> None:
        @ti.kernel
        def total():
            for i in y:
                loss[None] += y[i]

        with ti.ad.Tape(loss):
            scatter()
            total()

    @ti.kernel
    def scatter():
        for i in x:
            y[i % 2] = x[0]

    @ti.kernel
    def unknown():
        for i in x:
            y[i % 2] = x[i]

    program(scatter)
    with pytest.raises(ti.ad.GradientError, match="several iterations"):
        program(unknown)


@ti.data_oriented
class Solver:
    def __init__(self) -> None:
        self.x, self.loss, _ = make()
        self.y = ti.field(ti.f32, 2, needs_grad=True)

    @ti.kernel
    def gather(self):
        for i in self.x:
            self.y[i % 2] = self.x[i]

    @ti.kernel
    def total(self):
        for i in self.y:
            self.loss[None] += self.y[i]


@ti.data_oriented
class Other(Solver):
    @ti.kernel
    def gather(self):
        for i in self.x:
            self.y[i % 2] = 2 * self.x[i]


@pytest.mark.parametrize("name", ["gather", "Solver.gather", f"{__name__}.Solver.gather"])
def test_races_of_methods_that_are_named_by_their_class(name: str) -> None:
    ti.init(accept_races=[name])
    refused = pytest.raises(ti.ad.GradientError, match="several iterations")
    for solver in (Solver(), Other()):
        is_named = name == "gather" or type(solver) is Solver
        with nullcontext() if is_named else refused, ti.ad.Tape(solver.loss):
            solver.gather()
            solver.total()


@pytest.mark.parametrize(
    "name", ["ather", "ver.gather", "Solver", "Other.gather", "s.Solver.gather"]
)
def test_a_part_of_a_name_names_nothing(name: str) -> None:
    ti.init(accept_races=[name])
    solver = Solver()
    with pytest.raises(ti.ad.GradientError, match="several iterations"), ti.ad.Tape(solver.loss):
        solver.gather()
        solver.total()


def test_accepted_race_result_is_not_recomputed() -> None:
    """In limited memory calls are recomputed, and would find something else."""
    ti.init(accept_races=["scatter"])
    x, loss, _ = make()
    y = ti.field(ti.f32, 2, needs_grad=True)

    @ti.kernel
    def scatter():
        for i in x:
            y[i % 2] = x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i] ** 2

    with ti.ad.Tape(loss, memory="1KiB") as tape:
        scatter()
        total()
    assert [entry.special.results is not None for entry in tape.entries] == [True, False]


def test_options_that_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="missing_gradient"):
        ti.init(missing_gradient="perhaps")
    monkeypatch.setenv("VKCHI_MISSING_GRADIENT", "perhaps")
    with pytest.raises(ValueError, match="VKCHI_MISSING_GRADIENT"):
        ti.init()
