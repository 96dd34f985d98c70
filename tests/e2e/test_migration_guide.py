"""docs/migrating.md: a test for each difference from Taichi."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vkchi as ti

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")


def test_the_page_agrees_with_these_tests() -> None:
    said = [line.split("**")[1] for line in PAGE.splitlines() if line.startswith("- **")]
    assert said == ["Devices.", "Not there:", "Gradients", "Accuracy.", "Checks.",
                    "Everything else that differs"]  # fmt: skip


@pytest.mark.parametrize("arch", ["cpu", "gpu", "cuda", "vulkan", "metal", "opengl", "x64"])
def test_every_arch_is_a_vulkan_device(arch: str, own_runtime: None) -> None:
    ti.init(arch=getattr(ti, arch))
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def count():
        for i in x:
            x[i] = i * i

    count()
    assert x.to_numpy().tolist() == [0, 1, 4, 9]


def test_missing_features_raise_with_a_message() -> None:
    for make in (lambda: ti.get_addr, lambda: ti.Mesh):
        with pytest.raises((ti.Unsupported, AttributeError), match=r"\w+ .*\w+"):
            make()


def test_sparse_blocks_have_memory_for_all_of_their_cells() -> None:
    x = ti.field(ti.f32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 8).place(x)
    x[9] = 1.0
    assert x.size_bytes == 4 * 32 and x.to_numpy().tolist().index(1.0) == 9


def test_overwritten_values_are_saved_by_tape() -> None:
    x, w, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(3))

    @ti.kernel
    def step():
        x[None] = x[None] * x[None] * w[None]

    @ti.kernel
    def measure():
        loss[None] += x[None]

    x[None], w[None] = 1.5, 0.5
    with ti.ad.Tape(loss):
        for _ in range(3):
            step()
        measure()
    # loss = w**7 x**8
    assert w.grad[None] == pytest.approx(7 * 0.5**6 * 1.5**8, rel=1e-5)


def test_a_field_without_gradient_on_the_way_is_an_error() -> None:
    x, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
    between = ti.field(ti.f32, ())

    @ti.kernel
    def first():
        between[None] = 2 * x[None]

    @ti.kernel
    def second():
        loss[None] += between[None]

    with pytest.raises(ti.VkchiError, match="between"), ti.ad.Tape(loss):
        first()
        second()


def test_divisions_and_roots_are_those_of_the_device() -> None:
    random = np.random.default_rng(3)
    a, b = (random.random(500, np.float32) + np.float32(0.1) for _ in range(2))
    quotient, root = np.zeros_like(a), np.zeros_like(a)

    @ti.kernel
    def compute(
        a: ti.types.ndarray(), b: ti.types.ndarray(), q: ti.types.ndarray(), r: ti.types.ndarray()
    ):
        for i in a:
            q[i], r[i] = a[i] / b[i], ti.sqrt(a[i])

    compute(a, b, quotient, root)
    np.testing.assert_array_max_ulp(quotient, a / b, 3)
    np.testing.assert_array_max_ulp(root, np.sqrt(a), 3)


def test_out_of_range_indices_corrupt_nothing() -> None:
    x, beside = ti.field(ti.i32, 4), ti.field(ti.i32, 4)
    x.fill(1)
    beside.fill(2)

    @ti.kernel
    def stray(by: ti.i32):
        for i in range(8):
            x[i + by] = 7

    stray(1000)
    assert x.to_numpy().tolist() == [1] * 4 and beside.to_numpy().tolist() == [2] * 4
