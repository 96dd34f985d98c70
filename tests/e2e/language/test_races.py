"""Loops whose iterations conflict warn, and run in order on the CPU."""

import warnings

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("races-warn")
def test_sums_along_rows() -> None:
    p, c = ti.field(ti.f32, (4, 100)), ti.field(ti.f32, (4, 100))
    c.fill(1)

    @ti.kernel
    def run():
        for i, j in p:
            if j == 0:
                p[i, j] = c[i, j]
            else:
                p[i, j] = p[i, j - 1] + c[i, j]

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    assert len(found) == 1
    assert "ti.loop_config(serialize=True)" in str(found[0].message)


def test_red_black_sweeps_agree() -> None:
    x = ti.field(ti.f32, 64)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = i * i

    @ti.kernel
    def sweep(color: ti.i32):
        for i in range(1, 63):
            if i % 2 == color:
                x[i] = 0.5 * (x[i - 1] + x[i + 1])

    fill()
    expected = [float(i * i) for i in range(64)]
    for color in (0, 1):
        sweep(color)
        for i in range(1, 63):
            if i % 2 == color:
                expected[i] = 0.5 * (expected[i - 1] + expected[i + 1])
    check(x.to_numpy(), expected)
