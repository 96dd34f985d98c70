"""Comparisons of vectors and matrices in Python scope, as conditions."""

import pytest

import vkchi as ti


def test_equal_vectors_are_true() -> None:
    x = ti.Vector.field(2, ti.f32, 2)
    x[0], x[1] = [1, 2], [1, 2]
    v, m = ti.Vector([1.0, 2.0]), ti.Matrix([[1, 2], [3, 4]])
    assert v == ti.Vector([1.0, 2.0])
    assert x[0] == x[1] and x[0] == v
    assert m == ti.Matrix([[1, 2], [3, 4]]) or v == m
    assert v < v + 1 and v <= v
    assert v in [ti.Vector([3.0, 4.0]), v]


def test_vectors_that_differ() -> None:
    if ti.Vector([1, 2]) != ti.Vector([1, 3]):
        return
    pytest.fail("they differ")


@pytest.mark.ours("truth-of-differences")
def test_vectors_that_are_not_equal_are_false() -> None:
    v, w = ti.Vector([1, 2]), ti.Vector([1, 3])
    assert not (v == w) and not (v < w) and not (v != v)
    assert not ti.Matrix([[1, 2], [3, 4]]) == ti.Matrix([[1, 2], [3, 5]])


@pytest.mark.ours("assert-vectors")
def test_asserts_in_kernels_ask_for_all(init) -> None:
    init(debug=True)

    @ti.kernel
    def k(a: ti.i32):
        v, w = ti.Vector([1, a]), ti.Vector([1, 2])
        assert v == w

    k(2)
    with pytest.raises(AssertionError):
        k(3)
