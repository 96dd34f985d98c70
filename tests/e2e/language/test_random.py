"""`ti.random` and `ti.randn`: uniform for every type, independent, seeded."""

import numpy as np
import pytest

import vkchi as ti

COUNT = 20000
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32,
         "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "i8": np.int8, "u8": np.uint8,
         "i16": np.int16, "u16": np.uint16}  # fmt: skip
FLOATS = ("f32", "f64")
INTEGERS = ("i32", "i64", "u32", "u64")
NARROW = ("i8", "u8", "i16", "u16")


def draw(t, function="random"):
    dtype, f = getattr(ti, t), getattr(ti, function)
    out = ti.field(dtype, COUNT)

    @ti.kernel
    def run():
        for i in out:
            out[i] = f(dtype)

    run()
    return out.to_numpy()


def unit(t, lacks):
    """Draws of an integer type as numbers from 0 to 1 of its range."""
    if lacks(t):
        pytest.skip(f"the device has no {t}")
    limits = np.iinfo(NUMPY[t])
    width = float(int(limits.max) - int(limits.min) + 1)
    return (draw(t).astype(float) - float(limits.min)) / width


def assert_uniform(x):
    """Mean, variance and 16 bins within five standard deviations."""
    assert abs(x.mean() - 0.5) < 5 * np.sqrt(1 / 12 / COUNT)
    assert abs(x.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / COUNT)
    bins = np.histogram(x, 16, (0, 1))[0]
    assert abs(bins - COUNT / 16).max() < 5 * np.sqrt(COUNT / 16)
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize("t", FLOATS)
def test_random_floats_are_uniform(t, lacks):
    if lacks(t):
        pytest.skip(f"the device has no {t}")
    x = draw(t).astype(float)
    assert 0 <= x.min() and x.max() < 1
    assert_uniform(x)
    assert len(np.unique(x)) > 0.99 * COUNT


def test_half_floats(lacks):
    if lacks("f16"):
        pytest.skip("the device has no f16")
    x = draw("f16").astype(float)
    assert 0 <= x.min() and x.max() <= 1
    assert abs(x.mean() - 0.5) < 0.02


@pytest.mark.parametrize("t", INTEGERS)
def test_random_integers_are_uniform(t, lacks):
    assert_uniform(unit(t, lacks))


@pytest.mark.ours("random-narrow", run=False)
@pytest.mark.parametrize("t", NARROW)
def test_narrow_integers(t, lacks):
    assert_uniform(unit(t, lacks) + np.random.default_rng(0).random(COUNT) / 2 ** np.iinfo(
        NUMPY[t]
    ).bits)  # fmt: skip


def test_several_draws_of_one_iteration_differ():
    out = ti.Vector.field(3, ti.f32, COUNT)

    @ti.kernel
    def run():
        for i in out:
            out[i] = ti.Vector([ti.random() for _ in range(3)])

    run()
    x = out.to_numpy()
    for k in range(3):
        assert_uniform(x[:, k])
        assert abs(np.corrcoef(x[:, k], x[:, (k + 1) % 3])[0, 1]) < 5 / np.sqrt(COUNT)


def test_draws_in_a_loop():
    out = ti.field(ti.f32, COUNT)

    @ti.kernel
    def run():
        for i in out:
            total = 0.0
            for _ in range(12):
                total += ti.random(float)
            out[i] = (total - 6) / ti.sqrt(12.0) + 0.5

    run()
    x = out.to_numpy()
    assert abs(x.mean() - 0.5) < 0.02
    assert abs(x.var() - 1 / 12) < 0.01


def test_launches_differ_and_seeds_repeat(init):
    def three():
        return [draw("f32") for _ in range(3)]

    init(random_seed=5)
    first = three()
    assert not (first[0] == first[1]).any() or (first[0] != first[1]).mean() > 0.99
    init(random_seed=5)
    again = three()
    init(random_seed=6)
    other = three()
    if ti.__name__ == "vkchi":  # Taichi's streams go to whichever thread comes first
        np.testing.assert_array_equal(first, again)
    assert (np.array(first) != np.array(other)).mean() > 0.99


@pytest.mark.parametrize("t", FLOATS)
def test_randn_is_normal(t, lacks):
    if lacks(t):
        pytest.skip(f"the device has no {t}")
    x = draw(t, "randn").astype(float)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 5 / np.sqrt(COUNT)
    assert abs(x.var() - 1) < 5 * np.sqrt(2 / COUNT)
    assert abs((x**4).mean() - 3) < 5 * np.sqrt(96 / COUNT)


def test_monte_carlo():
    @ti.kernel
    def run(n: ti.i32) -> ti.f32:
        inside = 0
        for _ in range(n):
            x, y = ti.random(), ti.random()
            if x * x + y * y < 1:
                inside += 1
        return 4 * inside / n

    assert abs(run(200000) - np.pi) < 0.03


def test_python_scope_has_none():
    with pytest.raises(Exception, match="inside a kernel|list index"):
        ti.random()
