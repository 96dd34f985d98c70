"""Decompositions of small matrices: their defining equations, on random and degenerate matrices."""

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(20)
COUNT = 64


def scaled_rows(n):
    return RNG.standard_normal((COUNT, n, n)) * 10.0 ** RNG.uniform(-6, 0, (COUNT, n, 1))


def rotations(n):
    return np.linalg.qr(RNG.standard_normal((COUNT, n, n)))[0]


def outer(n, rank):
    return RNG.standard_normal((COUNT, n, rank)) @ RNG.standard_normal((COUNT, rank, n))


def repeated(n):
    """Two equal singular values, and eigenvalues of both signs."""
    q = rotations(n)
    numbers = np.array([2.0, -2.0, 1.0])[:n]
    return q @ (numbers[:, None] * q.transpose(0, 2, 1))


def few(n):
    """Zero, identity, reflections, permutations, a shear."""
    eye = np.eye(n)
    flip = np.diag([1.0] * (n - 1) + [-1.0])
    shear = eye + np.eye(n, k=1)
    diagonal = np.diag([1.0, -5.0, 3.0][:n])
    return np.stack([0 * eye, eye, -eye, flip, eye[::-1], np.roll(eye, 1, 0), shear, diagonal])


FAMILIES = {
    "random": lambda n: RNG.standard_normal((COUNT, n, n)),
    "integers": lambda n: RNG.integers(-2, 3, (COUNT, n, n)).astype(float),
    "few": few,
    "rank 1": lambda n: outer(n, 1),
    "rank n-1": lambda n: outer(n, n - 1),
    "rotations": rotations,
    "repeated": repeated,
    "scaled rows": scaled_rows,
    "huge": lambda n: RNG.standard_normal((COUNT, n, n)) * 1e12,
    "rank 0": lambda n: np.zeros((COUNT, n, n)),
    "tiny": lambda n: RNG.standard_normal((COUNT, n, n)) * 1e-12,
}
# The f64 formulas of Taichi end at about 1e-10.
TYPES = {"f32": (np.float32, 1e-5), "f64": (np.float64, 1e-12 if ti.__name__ == "vkchi" else 1e-9)}
# Families that Taichi has formulas for that hold; of the others it loses precision.
PLAIN = ("random", "rotations")
LOST = pytest.mark.ours("degenerate-matrices", run=False)
CASES = [
    pytest.param(family, n, t, marks=() if family in PLAIN else LOST)
    for family in FAMILIES
    for n in (2, 3)
    for t in TYPES
]
SYMMETRIC = [pytest.param(*case.values, marks=LOST) for k, case in enumerate(CASES) if k != 1]


def decompose(name, m, t, *shapes):
    """The results of ti.<name> of each matrix, computed in a kernel, as 64-bit numpy arrays."""
    dtype, function, n = getattr(ti, t), getattr(ti, name), m.shape[-1]
    given = ti.Matrix.field(n, n, dtype, len(m))
    fields = [
        ti.Vector.field(*s, dtype, len(m)) if len(s) == 1 else ti.Matrix.field(*s, dtype, len(m))
        for s in shapes
    ]
    given.from_numpy(m.astype(TYPES[t][0]))

    @ti.kernel
    def run():
        for i in given:
            found = function(given[i], dtype)
            for k in ti.static(range(len(shapes))):
                fields[k][i] = found[k]

    run()
    return given.to_numpy().astype(float), *[x.to_numpy().astype(float) for x in fields]


def assert_near(got, want, scale, t):
    """Within the type's precision, of numbers of this size."""
    error = np.abs(got - want).reshape(len(got), -1).max(1) / scale
    assert error.max() < TYPES[t][1], (error.max(), error.argmax())


def size_of(m):
    size = np.abs(m).max((1, 2))
    return np.where(size > 0, size, 1.0)


def transposed(m):
    return m.transpose(0, 2, 1)


def assert_orthogonal(m, t):
    assert_near(m @ transposed(m), np.eye(m.shape[-1]), np.ones(len(m)), t)


@pytest.fixture(autouse=True)
def only_types_of_the_device(request, lacks):
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if lacks(params.get("t", "f32")):
        pytest.skip("the device has no f64")


# --- the definitions -----------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "n", "t"), CASES)
def test_svd(family, n, t):
    m, u, s, v = decompose("svd", FAMILIES[family](n), t, (n, n), (n, n), (n, n))
    size = size_of(m)
    assert_near(u @ s @ transposed(v), m, size, t)
    assert_orthogonal(u, t)
    assert_orthogonal(v, t)
    numbers = np.diagonal(s, axis1=1, axis2=2)
    assert_near(np.abs(numbers), np.linalg.svd(m)[1], size, t)
    assert (s[:, ~np.eye(n, dtype=bool)] == 0).all()
    # The signs are Taichi's: V is a rotation; of 3 U is one too, of 2 no number is negative.
    assert_near(np.linalg.det(v), 1.0, np.ones(len(m)), t)
    assert (numbers[:, :-1] >= 0).all()
    if n == 3:
        assert_near(np.linalg.det(u), 1.0, np.ones(len(m)), t)
    else:
        assert (numbers >= 0).all()


@pytest.mark.parametrize(("family", "n", "t"), CASES)
def test_polar_decompose(family, n, t):
    m, r, p = decompose("polar_decompose", FAMILIES[family](n), t, (n, n), (n, n))
    size = size_of(m)
    assert_near(r @ p, m, size, t)
    assert_orthogonal(r, t)
    assert_near(p, transposed(p), size, t)
    if n == 3:
        assert_near(np.linalg.det(r), 1.0, np.ones(len(m)), t)
    else:
        assert (np.linalg.eigvalsh(p).min(1) / size > -TYPES[t][1]).all()


@pytest.mark.parametrize(("family", "n", "t"), [CASES[1], *SYMMETRIC])
def test_sym_eig(family, n, t):
    m = FAMILIES[family](n)
    m, w, v = decompose("sym_eig", (m + transposed(m)) / 2, t, (n,), (n, n))
    size = size_of(m)
    assert_near(m @ v, v * w[:, None, :], size, t)
    assert_orthogonal(v, t)
    ascending = np.linalg.eigvalsh(m)
    assert_near(w, ascending if n == 3 else ascending[:, ::-1], size, t)


def check_eig(m, t):
    m, w, v = decompose("eig", m, t, (2, 2), (4, 2))
    size = size_of(m)
    values = w[:, :, 0] + 1j * w[:, :, 1]
    vectors = v[:, 0::2] + 1j * v[:, 1::2]
    assert_near(m @ vectors, vectors * values[:, None, :], size, t)
    assert_near(np.linalg.norm(vectors, axis=1), 1.0, np.ones(len(m)), t)
    assert_near(values.sum(1), np.trace(m, axis1=1, axis2=2), size, t)
    assert_near(values.prod(1), np.linalg.det(m), size * size, t)
    return values


@pytest.mark.parametrize("t", TYPES)
def test_eig(t):
    values = check_eig(FAMILIES["random"](2), t)
    assert (values[:, 0].real >= values[:, 1].real).all()
    assert (values[:, 0].imag >= 0).all()
    assert (values[:, 0].imag > 0).any()
    assert (values[:, 0].imag == 0).any()


@pytest.mark.parametrize("t", TYPES)
@LOST
def test_eig_of_few(t):
    check_eig(few(2), t)


# --- linear systems ------------------------------------------------------------------------------


def solve(m, b, t):
    dtype, n = getattr(ti, t), m.shape[-1]
    given, right = ti.Matrix.field(n, n, dtype, len(m)), ti.Vector.field(n, dtype, len(m))
    found = ti.Vector.field(n, dtype, len(m))
    given.from_numpy(m.astype(TYPES[t][0]))
    right.from_numpy(b.astype(TYPES[t][0]))

    @ti.kernel
    def run():
        for i in given:
            found[i] = ti.solve(given[i], right[i], dtype)

    run()
    return found.to_numpy().astype(float)


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("n", [2, 3])
def test_solve(n, t):
    x = RNG.standard_normal((COUNT, n))
    m = rotations(n) * RNG.uniform(0.5, 3, (COUNT, 1, n))
    assert_near(solve(m, np.einsum("kij,kj->ki", m, x), t), x, np.full(COUNT, 4.0), t)


@pytest.mark.ours("solve-4")
def test_solve_of_4():
    x = RNG.standard_normal((COUNT, 4))
    m = rotations(4) * RNG.uniform(0.5, 3, (COUNT, 1, 4))
    found = solve(m, np.einsum("kij,kj->ki", m, x), "f32")
    assert_near(found, x, np.full(COUNT, 4.0), "f32")


def test_solve_needs_its_pivots():
    m = np.array([[[0, 1, 2], [1, 0, 3], [4, -3, 8]], [[0, 0, 1], [0, 1, 0], [1, 0, 0]]], float)
    x = np.array([[1, 2, 3], [4, 5, 6]], float)
    found = solve(m, np.einsum("kij,kj->ki", m, x), "f32")
    np.testing.assert_allclose(found, x, rtol=1e-5)


# --- determinant, inverse, trace -----------------------------------------------------------------


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_inverse_determinant_trace(n, t):
    dtype = getattr(ti, t)
    m = rotations(n) * RNG.uniform(0.5, 3, (COUNT, 1, n))
    given, inverse = (ti.Matrix.field(n, n, dtype, COUNT) for _ in range(2))
    numbers = ti.Vector.field(2, dtype, COUNT)
    given.from_numpy(m.astype(TYPES[t][0]))

    @ti.kernel
    def run():
        for i in given:
            inverse[i] = given[i].inverse()
            numbers[i] = ti.Vector([given[i].determinant(), given[i].trace()])

    run()
    one = np.full(COUNT, 30.0)
    assert_near(inverse.to_numpy() @ m, np.eye(n), one, t)
    assert_near(numbers.to_numpy()[:, 0], np.linalg.det(m), one, t)
    assert_near(numbers.to_numpy()[:, 1], np.trace(m, axis1=1, axis2=2), one, t)


# --- error bounds near the unit matrix -----------------------------------------------------------


def near_identity(n, size, count=200):
    random = np.random.default_rng(5)
    return np.eye(n) + size * random.uniform(-1, 1, (count, n, n))


def exact_rotation(m):
    """The polar factor in 64 bits of the 32-bit m: a rotation."""
    m = m.astype(np.float32).astype(float)
    if m.shape[-1] == 3:
        u, _, vt = np.linalg.svd(m)
        return u @ vt
    angle = np.arctan2(m[:, 1, 0] - m[:, 0, 1], m[:, 0, 0] + m[:, 1, 1])
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c, -s, s, c], 1).reshape(-1, 2, 2)


@pytest.mark.parametrize("size", [1e-12, 1e-10, 1e-8])
def test_the_rotation_of_a_nearly_unit_matrix_is_as_exact_as_its_distance(size):
    """Below an ulp of 1, `U @ V.transpose()` and R are exact to an ulp of that distance: elastic
    materials at rest have no stress."""
    m = near_identity(2, size)
    _, u, _, v = decompose("svd", m, "f32", (2, 2), (2, 2), (2, 2))
    _, r, _ = decompose("polar_decompose", m, "f32", (2, 2), (2, 2))
    want = exact_rotation(m)
    for got in ((u.astype(np.float32) @ transposed(v).astype(np.float32)).astype(float), r):
        assert np.abs(got - want).max() < 4e-7 * size


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.1])
def test_the_rotation_near_the_unit_matrix_is_exact_to_a_few_roundings(n, size):
    m = near_identity(n, size)
    _, u, _, v = decompose("svd", m, "f32", (n, n), (n, n), (n, n))
    _, r, _ = decompose("polar_decompose", m, "f32", (n, n), (n, n))
    want = exact_rotation(m)
    assert np.abs(u @ transposed(v) - want).max() < (4 if n == 2 else 8) * 1.2e-7
    assert np.abs(r - want).max() < (1.5 if n == 2 else 8) * 1.2e-7


@pytest.mark.parametrize("n", [2, 3])
def test_rotations_are_their_own_polar_factor(n):
    random = np.random.default_rng(8)
    m = np.stack([np.linalg.qr(random.normal(size=(n, n)))[0] for _ in range(100)])
    m *= np.linalg.det(m)[:, None, None] ** (n % 2)  # of 3: rotations
    m, r, p = decompose("polar_decompose", m, "f32", (n, n), (n, n))
    assert np.abs(r - m).max() < 8 * 1.2e-7
    assert np.abs(p - np.eye(n)).max() < 8 * 1.2e-7


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_polar_factor_of_rank_0_and_1_is_orthogonal(n, rank):
    random = np.random.default_rng(9)
    a, b = random.normal(size=(2, 100, n))
    m, r, p = decompose("polar_decompose", rank * a[:, :, None] * b[:, None], "f32", (n, n), (n, n))
    assert np.abs(r @ transposed(r) - np.eye(n)).max() < 8 * 1.2e-7
    assert np.abs(r @ p - m).max() <= 8 * 1.2e-7 * np.abs(m).max()
