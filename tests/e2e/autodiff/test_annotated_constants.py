"""Arrays under `ti.types.ndarray(needs_grad=False)` are constant to the kernel at every call."""

from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti

pytestmark = pytest.mark.device
W = [1.0, 2.0, 3.0, 4.0]


@ti.kernel
def square(w: ti.types.ndarray(), h: ti.types.ndarray()):
    for i in w:
        h[i] = w[i] * w[i]


@ti.kernel
def weigh(
    h: ti.types.ndarray(needs_grad=False),
    w: ti.types.ndarray(),
    loss: ti.types.ndarray(),
    k: ti.i32,
):
    for i in h:
        loss[None] += h[i] * w[i] * k


def array(*values: float) -> ti.Ndarray:
    made = ti.ndarray(ti.f32, len(values), needs_grad=True)
    made.from_numpy(np.array(values, np.float32))
    return made


@pytest.fixture
def arrays() -> tuple[ti.Ndarray, ti.Ndarray, ti.Ndarray]:
    ti.init(arch=ti.vulkan)
    return array(*W), array(0, 0, 0, 0), ti.ndarray(ti.f32, (), needs_grad=True)


def test_constant_in_every_tape(arrays) -> None:
    w, h, loss = arrays
    for k in (1, 1, 2, 1):
        with ti.ad.Tape(loss):
            square(w, h)
            weigh(h, w, loss, k)
        assert w.grad.to_numpy().tolist() == [k * x * x for x in W]


def test_constant_in_every_call_of_one_tape(arrays) -> None:
    w, h, loss = arrays
    with ti.ad.Tape(loss):
        for _ in range(3):
            square(w, h)
            weigh(h, w, loss, 1)
    assert w.grad.to_numpy().tolist() == [3 * x * x for x in W]


def test_constant_in_every_gradient_by_itself(arrays) -> None:
    w, h, loss = arrays
    for k in (1, 2, 2):
        loss.grad.fill(1)
        w.grad.fill(0)
        h.grad.fill(0)
        weigh.grad(h, w, loss, k)
        assert h.grad.to_numpy().tolist() == [0] * 4
    square(w, h)
    w.grad.fill(0)
    weigh.grad(h, w, loss, 1)
    assert w.grad.to_numpy().tolist() == [x * x for x in W]


def test_constant_in_every_product_with_the_hessian(arrays) -> None:
    w, h, loss = arrays

    def run() -> None:
        square(w, h)
        weigh(h, w, loss, 1)
        square(w, h)
        weigh(h, w, loss, 1)

    for _ in range(3):
        found = ti.ad.hvp(run, loss, w, [1, 1, 1, 1])
        assert found.tolist() == [0] * 4  # the gradient by w is 2 h, of which h is constant
        assert w.grad.to_numpy().tolist() == [2 * x * x for x in W]


def test_a_target_network_stays_constant(arrays) -> None:
    """Semi-gradient steps of a temporal difference: `(r + c * v' - v) ** 2` with v' constant."""
    w, _, loss = arrays

    @ti.kernel
    def error(
        target: ti.types.ndarray(needs_grad=False), v: ti.types.ndarray(), out: ti.types.ndarray()
    ):
        for i in range(3):
            out[None] += (1 + 0.5 * target[i + 1] - v[i]) ** 2

    values = np.array(W)
    for _ in range(3):
        with ti.ad.Tape(loss):
            error(w, w, loss)
        gap = 1 + 0.5 * values[1:] - values[:-1]
        assert np.allclose(w.grad.to_numpy(), [*(-2 * gap), 0])
        values = values - 0.125 * np.array([*(-2 * gap), 0])
        w.from_numpy(values.astype(np.float32))


@pytest.mark.parametrize("first", [True, False])
def test_annotated_and_plain_parameters_in_turn(arrays, first: bool) -> None:
    """Two kernels differ in one annotation only."""
    w, h, loss = arrays

    def make(annotation: object) -> Callable[..., None]:
        @ti.kernel
        def use(h: annotation, w: ti.types.ndarray(), loss: ti.types.ndarray()):
            for i in h:
                loss[None] += h[i] * w[i]

        return use

    both = {flag: make(ti.types.ndarray(needs_grad=flag)) for flag in (True, False)}
    for needs in (first, not first, first, not first):
        with ti.ad.Tape(loss):
            square(w, h)
            both[needs](h, w, loss)
        assert w.grad.to_numpy().tolist() == [(3 if needs else 1) * x * x for x in W]
