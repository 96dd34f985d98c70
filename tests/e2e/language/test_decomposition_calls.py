"""Calls of decompositions: permitted contexts, operands, and errors."""

import numpy as np
import pytest

import vkchi as ti


def test_integers_become_floats():
    @ti.kernel
    def run() -> ti.f32:
        U, S, V = ti.svd(ti.Matrix([[3, 0], [0, 4]]))
        return S[0, 0] * 10 + S[1, 1]

    assert run() == pytest.approx(43, rel=1e-6)


def test_results_are_used_at_once():
    @ti.kernel
    def run(k: ti.i32) -> ti.f32:
        F = ti.Matrix([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, float(k)]])
        U, sig, V = ti.svd(F)
        J = 1.0
        for d in ti.static(range(3)):
            J *= sig[d, d]
        R = U @ V.transpose()
        return J * R.determinant()

    assert run(3) == pytest.approx(6, rel=1e-5)
    assert run(-3) == pytest.approx(-6, rel=1e-5)


def test_in_functions_and_loops():
    @ti.func
    def stretch(m):
        R, P = ti.polar_decompose(m)
        return P

    @ti.kernel
    def run() -> ti.f32:
        total = 0.0
        for k in range(3):
            if k != 1:
                total += stretch(ti.Matrix([[0.0, -2.0], [1.0 + k, 0.0]])).trace()
        return total

    assert run() == pytest.approx(1 + 2 + 3 + 2, rel=1e-5)


def test_shear_of_an_elastic_body():
    """The corotated stress of a rotated, unstretched body is zero."""

    @ti.kernel
    def run(angle: ti.f32) -> ti.f32:
        c, s = ti.cos(angle), ti.sin(angle)
        F = ti.Matrix([[c, -s], [s, c]])
        U, S, V = ti.svd(F)
        return (F - U @ V.transpose()).norm()

    for angle in np.linspace(0, 7, 9):
        assert run(angle) < 1e-3  # sines are that rough on some devices


def test_eigenvalues_of_a_stress():
    @ti.kernel
    def run() -> ti.types.vector(3, ti.f32):
        w, v = ti.sym_eig(ti.Matrix([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 7.0]]))
        return w

    np.testing.assert_allclose(run(), [1, 3, 7], rtol=1e-5)


def test_eig_of_a_rotation():
    @ti.kernel
    def run() -> ti.types.matrix(2, 2, ti.f32):
        values, vectors = ti.eig(ti.Matrix([[0.0, -1.0], [1.0, 0.0]]))
        return values

    np.testing.assert_allclose(run().to_numpy(), [[0, 1], [0, -1]], atol=1e-6)


def test_solve_with_literals():
    @ti.kernel
    def run() -> ti.types.vector(2, ti.f32):
        return ti.solve(ti.Matrix([[2.0, 1.0], [1.0, 3.0]]), ti.Vector([5.0, 10.0]))

    np.testing.assert_allclose(run(), [1, 3], rtol=1e-5)


@pytest.mark.ours("decompose-in-python")
def test_in_python_scope():
    m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
    U, S, V = ti.svd(m)
    np.testing.assert_allclose((U @ S @ V.transpose()).to_numpy(), m.to_numpy(), rtol=1e-12)
    R, P = ti.polar_decompose(m)
    np.testing.assert_allclose((R @ P).to_numpy(), m.to_numpy(), rtol=1e-12)
    three = ti.Matrix([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 7.0]])
    w, _ = ti.sym_eig(three)
    np.testing.assert_allclose(w.to_numpy(), [1, 3, 7], rtol=1e-12)
    U, S, V = ti.svd(three, dt=ti.f32)
    assert S.to_numpy().dtype == np.float32
    np.testing.assert_allclose(ti.solve(m, ti.Vector([5.0, 11.0])).to_numpy(), [1, 2], rtol=1e-12)
    values, _ = ti.eig(m)
    np.testing.assert_allclose(values.to_numpy()[:, 0].sum(), 5, rtol=1e-12)


@pytest.mark.ours("decompose-in-python")
def test_singular_systems_are_not_finite():
    found = ti.solve(ti.Matrix([[1.0, 2.0], [2.0, 4.0]]), ti.Vector([1.0, 1.0]))
    assert not np.isfinite(found.to_numpy()).any()


@pytest.mark.parametrize("name", ["svd", "polar_decompose", "sym_eig", "eig"])
def test_unsupported_shapes_raise(name):
    function = getattr(ti, name)

    @ti.kernel
    def run() -> ti.f32:
        found = function(ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        return found[0][0, 0]

    with pytest.raises((ti.TaichiCompilationError, Exception)):
        run()


@pytest.mark.ours("frexp", run=False)
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_frexp(t, lacks):
    if lacks(t):
        pytest.skip("the device has no f64")
    numbers = [8.5, 0.0, -3.0, 0.1, 1e30, -1e-30, 1.0, 0.5, -0.75]
    x = np.array(numbers, t.replace("f", "float"))
    mantissa, exponent = np.zeros_like(x), np.zeros(len(x), np.int32)

    @ti.kernel
    def run(x: ti.types.ndarray(), m: ti.types.ndarray(), e: ti.types.ndarray()):
        for i in x:
            m[i], e[i] = ti.frexp(x[i])

    run(x, mantissa, exponent)
    np.testing.assert_array_equal(mantissa, np.frexp(x)[0])
    np.testing.assert_array_equal(exponent, np.frexp(x)[1])


@pytest.mark.parametrize("literal", ["ti.i8(200)", "ti.u8(-1)", "ti.u32(4294967296)"])
def test_literals_fit_their_types(literal, tmp_path):
    path = tmp_path / "literal.py"
    path.write_text(f"def run() -> ti.i64:\n    return {literal}\n")
    names = {"ti": ti}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(ti.TaichiTypeError):
        ti.kernel(names["run"])()


def test_casts_wrap(lacks):
    if lacks("i8"):
        pytest.skip("the device has no i8")

    @ti.kernel
    def run(x: ti.i32) -> ti.types.vector(3, ti.i32):
        return ti.Vector([ti.cast(ti.cast(x, ti.i8), ti.i32), ti.u8(x), ti.i16(x)])

    assert list(run(200)) == [-56, 200, 200]
    assert list(run(-1)) == [-1, 255, -1]


def test_integer_powers_have_the_type_of_their_base(lacks):
    if lacks("i64") or lacks("u8"):
        pytest.skip("the device lacks the types")

    @ti.kernel
    def run(k: ti.i32) -> ti.types.vector(2, ti.i64):
        return ti.Vector([ti.cast(ti.cast(k, ti.u8) ** 2, ti.i64), ti.cast(k, ti.i64) ** 13])

    assert list(run(20)) == [400 % 256, 20**13]
