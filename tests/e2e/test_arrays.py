"""Fields and ndarrays from Python, and arrays of other libraries as kernel arguments."""

import numpy as np
import pytest

import vkchi as ti

TYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"]
NP = {t: np.dtype(f"{t[0]}{int(t[1:]) // 8}") for t in TYPES}


def make(kind, dtype, shape):
    return (ti.field if kind == "field" else ti.ndarray)(dtype, shape)


def make_vectors(kind, n, dtype, shape):
    return (ti.Vector.field if kind == "field" else ti.Vector.ndarray)(n, dtype, shape)


def make_matrices(kind, n, m, dtype, shape):
    return (ti.Matrix.field if kind == "field" else ti.Matrix.ndarray)(n, m, dtype, shape)


both = pytest.mark.parametrize("kind", ["field", "ndarray"])


# --- elements ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 2, 2, 2)], ids=str)
def test_element_access(kind, shape):
    x = make(kind, ti.i32, shape)
    assert x.shape == shape
    want = np.zeros(shape, np.int32)
    for count, index in enumerate(np.ndindex(*shape)):
        key = index if len(index) > 1 else index[0]
        assert x[key] == 0
        x[key] = count * 3 - 5
        want[index] = count * 3 - 5
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert x[tuple(n - 1 for n in shape)] == want.flat[-1]


@both
def test_elements_of_zero_axes(kind):
    x = make(kind, ti.f32, ())
    x[None] = 2.5
    assert x[None] == 2.5
    x[None] += 1
    assert x[()] == 3.5 and x.shape == ()
    assert x.to_numpy() == 3.5


@both
@pytest.mark.parametrize("t", NP)
def test_elements_of_every_type(kind, t, need):
    need(t)
    x = make(kind, getattr(ti, t), 3)
    high = 1.5 if t[0] == "f" else np.iinfo(NP[t]).max
    low = -2.25 if t[0] == "f" else np.iinfo(NP[t]).min
    x[0], x[1] = high, low
    assert (x[0], x[1], x[2]) == (high, low, 0)
    assert x.to_numpy().dtype == NP[t]
    assert isinstance(x[0], float if t[0] == "f" else int)


@both
def test_shape_given_as_an_int_and_numpy_int(kind):
    assert make(kind, ti.f32, 4).shape == (4,)
    assert make(kind, ti.f32, np.int64(4)).shape == (4,)
    assert make(kind, ti.f32, [2, 3]).shape == (2, 3)


@both
def test_dtype_as_python_and_numpy_types(kind):
    assert make(kind, float, 2).dtype == ti.f32
    assert make(kind, int, 2).dtype == ti.i32


def test_augmented_assignment_from_python():
    x = ti.field(ti.f32, (2, 2))
    x[0, 1] += 1.5
    x[0, 1] *= 4
    x[1, 1] -= 1
    np.testing.assert_array_equal(x.to_numpy(), [[0, 6], [0, -1]])


@both
def test_vector_elements(kind):
    x = make_vectors(kind, 3, ti.f32, 4)
    x[0] = [1, 2, 3]
    x[1] = ti.Vector([4.0, 5.0, 6.0])
    x[2][1] = 7
    x[3][2] += 2.5
    x[0][0] -= 0.5
    want = [[0.5, 2, 3], [4, 5, 6], [0, 7, 0], [0, 0, 2.5]]
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert [x[1][k] for k in range(3)] == [4, 5, 6]
    assert x.shape == (4,) and x.to_numpy().shape == (4, 3)


def test_vector_components_by_name():
    x = ti.Vector.field(2, ti.f32, ())
    x[None].x = 3
    x[None].y += 4
    x[None][1] -= 0.5
    assert (x[None].x, x[None].y) == (3, 3.5)
    assert x[None].norm() == pytest.approx(np.hypot(3, 3.5))


@both
def test_matrix_elements(kind):
    F = make_matrices(kind, 2, 2, ti.f32, (2, 3))
    a, b, c, d = 1, 2, 3, 4
    F[0, 1] = [[a, b], [c, d]]
    F[1, 2] = ti.Matrix([[5.0, 6.0], [7.0, 8.0]])
    F[1, 0][0, 1] = 9
    F[1, 0][1, 0] -= 1.5
    want = np.zeros((2, 3, 2, 2))
    want[0, 1], want[1, 2] = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    want[1, 0, 0, 1], want[1, 0, 1, 0] = 9, -1.5
    np.testing.assert_array_equal(F.to_numpy(), want)
    assert F[0, 1][1, 0] == 3


def test_element_values_in_python():
    x = ti.Vector.field(3, ti.f32, 2)
    x[0], x[1] = [1, 2, 2], [0, 1, 0]
    a, b = x[0], x[1]
    s = a + 2 * b
    assert [s[k] for k in range(3)] == [1, 4, 2]
    assert a.dot(b) == 2 and a.norm() == 3
    assert a.to_numpy().tolist() == [1, 2, 2]
    x[1] = a
    assert x.to_numpy()[1].tolist() == [1, 2, 2]


@both
def test_index_errors(kind):
    x = make(kind, ti.f32, (3, 4))
    for key in ((0, 0, 0), 1.5):
        with pytest.raises(Exception) as caught:
            x[key]
        assert not isinstance(caught.value, AttributeError)


def test_index_out_of_range():
    x = ti.field(ti.f32, (3, 4))
    for key in ((3, 0), (0, 4)):
        with pytest.raises(IndexError):
            x[key]
        with pytest.raises(IndexError):
            x[key] = 1


# --- whole contents ----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("t", NP)
def test_numpy_round_trip(kind, t, need):
    need(t)
    values = (np.random.default_rng(1).random((7, 9)) * 100).astype(NP[t])
    x = make(kind, getattr(ti, t), (7, 9))
    x.from_numpy(values)
    values_copy = values.copy()
    values[:] = 0
    got = x.to_numpy()
    np.testing.assert_array_equal(got, values_copy)
    got[:] = 1
    np.testing.assert_array_equal(x.to_numpy(), values_copy)


@both
def test_numpy_round_trip_of_tensors(kind):
    rng = np.random.default_rng(2)
    v, m = make_vectors(kind, 3, ti.f32, (4, 5)), make_matrices(kind, 2, 3, ti.i32, 6)
    a, b = rng.random((4, 5, 3), np.float32), rng.integers(0, 99, (6, 2, 3)).astype(np.int32)
    v.from_numpy(a)
    m.from_numpy(b)
    np.testing.assert_array_equal(v.to_numpy(), a)
    np.testing.assert_array_equal(m.to_numpy(), b)


@both
def test_from_strided_numpy(kind):
    base = np.arange(60, dtype=np.int32).reshape(6, 10)
    x = make(kind, ti.i32, (3, 5))
    x.from_numpy(base[::2, 1::2])
    np.testing.assert_array_equal(x.to_numpy(), base[::2, 1::2])
    y = make(kind, ti.i32, (10, 6))
    y.from_numpy(base.T)
    np.testing.assert_array_equal(y.to_numpy(), base.T)


@both
def test_from_numpy_of_a_wrong_shape(kind):
    x = make(kind, ti.f32, (3, 4))
    for shape in ((4, 3), (12,), (3, 4, 1)):
        with pytest.raises(Exception, match="(?i)shape|dimension"):
            x.from_numpy(np.zeros(shape, np.float32))


@both
def test_fill_sets_all_elements(kind):
    x, v = make(kind, ti.f32, (5, 3)), make_vectors(kind, 2, ti.i32, 7)
    x.fill(2.5)
    v.fill(3)
    assert (x.to_numpy() == 2.5).all() and (v.to_numpy() == 3).all()
    x.fill(0)
    assert not x.to_numpy().any()


def test_fill_in_a_kernel():
    """It runs with every launch, not once while the kernel is compiled."""
    x, v = ti.field(ti.f32, (5, 3)), ti.Vector.field(2, ti.f32, 7)

    @ti.kernel
    def run(k: ti.f32):
        x.fill(2.5)
        for I in ti.grouped(x):
            x[I] += k
        v.fill(k)

    for k in (1.0, 2.0, 3.0):
        run(k)
        assert (x.to_numpy() == 2.5 + k).all() and (v.to_numpy() == k).all()


def test_fill_with_a_constant_in_a_kernel():
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        x.fill(2)
        for i in x:
            x[i] += i

    for _ in range(3):
        run()
        assert x.to_numpy().tolist() == [2, 3, 4, 5]


def test_python_methods_of_fields_do_not_run_at_compile_time():
    x = ti.field(ti.f32, 3)
    other = ti.field(ti.f32, 3)
    other.fill(7)

    @ti.kernel
    def run():
        x.copy_from(other)

    try:
        run()
    except ti.TaichiCompilationError:
        assert not x.to_numpy().any()
    else:
        other.fill(8)
        run()
        assert (x.to_numpy() == 8).all()


def test_fill_with_a_vector():
    v = ti.Vector.field(3, ti.f32, 4)
    v.fill(ti.Vector([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(v.to_numpy(), [[1, 2, 3]] * 4)


@both
def test_copy_from(kind):
    x, y = make(kind, ti.f32, (5, 3)), make(kind, ti.f32, (5, 3))
    x.from_numpy(np.random.default_rng(1).random((5, 3), np.float32))
    y.copy_from(x)
    np.testing.assert_array_equal(x.to_numpy(), y.to_numpy())
    x[0, 0] = 9
    assert y[0, 0] != 9


def test_copy_from_between_layouts():
    x = ti.Vector.field(3, ti.f32, 5)
    y = ti.Vector.field(3, ti.f32, 5, layout=ti.Layout.SOA)
    x.from_numpy(np.arange(15, dtype=np.float32).reshape(5, 3))
    y.copy_from(x)
    np.testing.assert_array_equal(y.to_numpy(), x.to_numpy())


def test_torch_round_trip():
    torch = pytest.importorskip("torch")
    x, v = ti.field(ti.f32, (3, 4)), ti.Vector.field(2, ti.i32, 5)
    a = torch.rand(3, 4)
    b = torch.arange(10, dtype=torch.int32).reshape(5, 2)
    x.from_torch(a)
    v.from_torch(b)
    assert torch.equal(x.to_torch(), a) and torch.equal(v.to_torch(), b)
    assert x.to_torch().dtype == torch.float32
    x.from_torch(a.T.contiguous().T)
    assert torch.equal(x.to_torch(device="cpu"), a)
    with pytest.raises(ValueError, match=r"^an array of shape \(3, 4\) is needed, not"):
        x.from_torch(a.T)


# --- Python and device take turns --------------------------------------------------------------


@both
def test_reads_and_writes_between_launches(kind):
    x = make(kind, ti.i32, 4)

    @ti.kernel
    def double(a: ti.template()):
        for i in a:
            a[i] *= 2

    @ti.kernel
    def double_array(a: ti.types.ndarray()):
        for i in a:
            a[i] *= 2

    run = double if kind == "field" else double_array
    x[0] = 1
    for step in range(12):
        run(x)
        assert x[0] == 2
        x[0] = 1
        x[3] += 1
        run(x)
        x[0] = x[0] - 1
    want = 0
    for step in range(12):
        want = (want * 2 + 1) * 2
    assert x[3] == want


def test_fill_and_copies_are_ordered_with_launches():
    x, y = ti.field(ti.i32, 1000), ti.field(ti.i32, 1000)

    @ti.kernel
    def increment():
        for i in x:
            x[i] += 1

    for _ in range(5):
        x.fill(7)
        increment()
        y.copy_from(x)
        increment()
        x.from_numpy(x.to_numpy() * 2)
        increment()
    assert (x.to_numpy() == 19).all() and (y.to_numpy() == 8).all()


def test_kernels_share_arrays():
    a, b = ti.ndarray(ti.f32, 64), ti.field(ti.f32, 64)

    @ti.kernel
    def produce(x: ti.types.ndarray(), k: ti.f32):
        for i in x:
            x[i] = i * k

    @ti.kernel
    def consume(x: ti.types.ndarray()):
        for i in x:
            b[i] += x[63 - i]

    @ti.kernel
    def back(x: ti.types.ndarray()):
        for i in b:
            x[i] = b[i] + x[i]

    for k in (1.0, 2.0):
        produce(a, k)
        consume(a)
        back(a)
    i = np.arange(64)
    total = 3 * i[::-1]
    np.testing.assert_array_equal(b.to_numpy(), total)
    np.testing.assert_array_equal(a.to_numpy(), total + 2 * i)


def test_the_same_array_twice():
    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] += x[i]

    a = ti.ndarray(ti.i32, 10)
    a.fill(3)
    run(a, a)
    assert (a.to_numpy() == 6).all()


def test_field_and_template_of_the_same_field():
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def run(y: ti.template()):
        for i in x:
            x[i] = i
        for i in y:
            y[i] += x[i]

    run(x)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(8))


def test_arrays_die_and_are_born():
    @ti.kernel
    def run(x: ti.types.ndarray(), k: ti.i32):
        for i in x:
            x[i] += k

    for k in range(50):
        x = ti.ndarray(ti.i32, 1000 + k)
        run(x, k)
        assert x[0] == k and x[999 + k] == k
        y = ti.field(ti.i32, 100)
        assert y[99] == 0


# --- numpy and torch as arguments --------------------------------------------------------------


@pytest.mark.parametrize("t", NP)
def test_numpy_arguments_are_changed_in_place(t, need):
    need(t)

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i, j in x:
            x[i, j] += 3

    a = np.arange(20).reshape(4, 5).astype(NP[t])
    run(a)
    np.testing.assert_array_equal(a, np.arange(20).reshape(4, 5) + 3)


@pytest.mark.parametrize("form", ["strided", "transposed", "reversed", "fortran", "column"])
def test_numpy_arguments_that_are_not_contiguous(form):
    base = np.arange(48, dtype=np.float32).reshape(6, 8)
    before = base.copy()
    view = {
        "strided": base[::2, 1::3],
        "transposed": base.T,
        "reversed": base[::-1, ::-1],
        "fortran": np.asfortranarray(base),
        "column": base[:, 2:3],
    }[form]
    start = view.copy()

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i, j in x:
            x[i, j] = x[i, j] * 10 + i

    try:
        run(view)
    except (ValueError, ti.TaichiRuntimeError, ti.TaichiCompilationError) as e:
        assert "contiguous" in str(e)
        return
    want = start * 10 + np.arange(view.shape[0])[:, None]
    np.testing.assert_array_equal(view, want)
    if form != "fortran":
        untouched = base != before
        assert untouched.sum() <= view.size


def test_numpy_arguments_that_are_only_read():
    @ti.kernel
    def total(x: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    a = np.arange(10, dtype=np.float32)
    a.setflags(write=False)
    try:
        assert total(a) == 45
    except ValueError as e:
        assert "read" in str(e) or "writ" in str(e)
    b = np.ones(10, np.float32)
    assert total(b) == 10
    b[3] = 5
    assert total(b) == 14


def test_torch_arguments():
    torch = pytest.importorskip("torch")

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i, j] * 2
            x[i, j] = -1

    x, y = torch.arange(12, dtype=torch.float32).reshape(3, 4), torch.zeros(3, 4)
    run(x, y)
    assert torch.equal(y, torch.arange(12, dtype=torch.float32).reshape(3, 4) * 2)
    assert (x == -1).all()


@pytest.mark.parametrize("t", ["int32", "int64", "float64", "uint8", "float16"])
def test_torch_arguments_of_other_types(t, need):
    torch = pytest.importorskip("torch")
    need({"int32": "i32", "int64": "i64", "float64": "f64", "uint8": "u8", "float16": "f16"}[t])

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    x = torch.arange(10).to(getattr(torch, t))
    run(x)
    assert x.tolist() == list(range(1, 11))


def test_arrays_of_vectors_as_arguments():
    @ti.kernel
    def run(
        x: ti.types.ndarray(dtype=ti.math.vec3, ndim=1),
        m: ti.types.ndarray(dtype=ti.types.matrix(2, 2, ti.f32), ndim=1),
    ):
        for i in x:
            x[i] = x[i] * 2 + i
            x[i].y = -1
        for i in m:
            m[i] = m[i] @ m[i]

    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    b = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    x, m = ti.Vector.ndarray(3, ti.f32, 4), ti.Matrix.ndarray(2, 2, ti.f32, 3)
    x.from_numpy(a)
    m.from_numpy(b)
    run(x, m)
    want = a * 2 + np.arange(4)[:, None]
    want[:, 1] = -1
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(m.to_numpy(), b @ b)
    c, d = a.copy(), b.copy()
    run(c, d)
    np.testing.assert_array_equal(c, want)
    np.testing.assert_array_equal(d, b @ b)


def test_shapes_inside_kernels():
    @ti.kernel
    def run(x: ti.types.ndarray()) -> ti.i32:
        n = x.shape[0]
        s = 0
        for i in range(n):
            for j in range(x.shape[1]):
                s += x[i, j]
        return s * 1000 + x.shape[0] * 10 + x.shape[1]

    assert run(np.ones((3, 4), np.int32)) == 12034
    assert run(np.ones((5, 2), np.int32)) == 10052


def test_kernel_takes_many_types_and_ranks():
    @ti.kernel
    def run(x: ti.types.ndarray()):
        for I in ti.grouped(x):
            x[I] += 1

    for shape in ((4,), (2, 3), (2, 2, 2), (5,)):
        for dtype in (np.int32, np.float32, np.uint32):
            a = np.zeros(shape, dtype)
            run(a)
            assert (a == 1).all()


@pytest.mark.parametrize("bad", ["dtype", "ndim", "list", "none", "number", "complex", "object"])
def test_arguments_that_do_not_fit(bad):
    @ti.kernel
    def run(x: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        for I in ti.grouped(x):
            x[I] += 1

    arg = {
        "dtype": np.zeros((2, 3), np.float64),
        "ndim": np.zeros(6, np.float32),
        "list": [[1.0, 2.0]],
        "none": None,
        "number": 1.5,
        "complex": np.zeros((2, 3), np.complex64),
        "object": np.zeros((2, 3), object),
    }[bad]
    with pytest.raises(
        (ti.TaichiRuntimeError, ti.TaichiCompilationError, TypeError, ValueError)
    ) as caught:
        run(arg)
    assert "x" in str(caught.value)
    ok = np.zeros((2, 3), np.float32)
    run(ok)
    assert (ok == 1).all()


@pytest.mark.parametrize("shape", [0, (3, 0), (-1,)], ids=str)
@both
def test_shapes_that_do_not_fit(kind, shape):
    with pytest.raises((ti.TaichiRuntimeError, ti.TaichiCompilationError, TypeError, ValueError)):
        make(kind, ti.f32, shape)


def test_old_spellings_of_array_annotations():
    @ti.kernel
    def run(x: ti.types.ndarray(field_dim=1), y: ti.ext_arr()):
        for i in x:
            x[i] += y[i]

    a, b = np.ones(4, np.float32), np.ones(4, np.float32)
    run(a, b)
    assert (a == 2).all()


# --- robustness --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray", "vector"])
def test_out_of_range_accesses_change_no_array(kind):
    """Outside debug mode they read something and write nowhere."""
    n = 100
    guards = [ti.field(ti.i32, n) for _ in range(2)]
    x = {"field": lambda: ti.field(ti.i32, n), "ndarray": lambda: ti.ndarray(ti.i32, n),
         "vector": lambda: ti.Vector.field(3, ti.i32, n)}[kind]()  # fmt: skip
    guards += [ti.field(ti.i32, n) for _ in range(2)]
    for k, guard in enumerate(guards):
        guard.fill(k + 1)
    x.fill(9)

    @ti.kernel
    def run(a: ti.template(), by: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            a[i + by] = -1
            a[i - by - n] = -1
            s += ti.cast(a[i + by] * 0, ti.i32)
        return s

    @ti.kernel
    def run_array(a: ti.types.ndarray(), by: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            a[i + by] = -1
            a[i - by - n] = -1
            ti.atomic_add(a[i + by], 3)
            s += a[i + by] * 0
        return s

    @ti.kernel
    def run_vector(a: ti.template(), by: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            a[i + by] = ti.Vector([-1, -1, -1])
            a[i - by - n][1] += 1
            s += a[i + by].x * 0
        return s

    launch = {"field": run, "ndarray": run_array, "vector": run_vector}[kind]
    for by in (n, n + 1, 10 * n, 2**20, 2**29, 2**30, 2**31 - n):
        assert launch(x, by) == 0
    assert (x.to_numpy() == 9).all()
    for k, guard in enumerate(guards):
        assert (guard.to_numpy() == k + 1).all()


def test_out_of_range_accesses_of_two_axes():
    x, guard = ti.field(ti.i32, (8, 8)), ti.field(ti.i32, 64)
    x.fill(1)
    guard.fill(2)

    @ti.kernel
    def run():
        for i, j in ti.ndrange((-20, 30), (-20, 30)):
            if i < 0 or i >= 8:
                x[i, j & 7] = 5

    run()
    assert (x.to_numpy() == 1).all() and (guard.to_numpy() == 2).all()


def test_large_array(is_fast):
    """More than the 128 MiB that a descriptor would reach on some devices."""
    if not is_fast:
        pytest.skip("takes long on this device")
    n = (128 << 20) // 4 + 12345
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        for i in x:
            x[i] = i ^ 0x5A5A

    run()
    for k in (0, n // 2, n - 12345, n - 1):
        assert x[k] == k ^ 0x5A5A


# --- init and reset ----------------------------------------------------------------------------


def test_reset_and_init_again(own_runtime):
    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    for _ in range(3):
        ti.init()
        a = ti.ndarray(ti.i32, 10)
        run(a)
        run(a)
        assert (a.to_numpy() == 2).all()
        ti.reset()


def test_fields_of_a_module_after_init(own_runtime):
    ti.init()
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in x:
            x[i] = i

    run()
    assert x.to_numpy().tolist() == [0, 1, 2, 3]


def test_calls_before_init_raise(own_runtime):
    ti.reset()

    @ti.kernel
    def run():
        pass

    with pytest.raises(Exception, match="(?i)init"):
        ti.field(ti.f32, 3)
    with pytest.raises(Exception, match="(?i)init"):
        run()


def test_arrays_of_an_old_runtime_raise(own_runtime):
    ti.init()
    x, y = ti.field(ti.i32, 4), ti.ndarray(ti.i32, 4)

    @ti.kernel
    def run(a: ti.types.ndarray()):
        for i in a:
            a[i] += 1

    @ti.kernel
    def run_field():
        for i in x:
            x[i] += 1

    run(y)
    run_field()
    ti.init()
    for use in (lambda: run(y), run_field, lambda: x[0], lambda: y.to_numpy()):
        with pytest.raises((ti.TaichiRuntimeError, ti.TaichiCompilationError)):
            use()


def test_sync_and_arch_names():
    ti.sync()
    for name in ("cpu", "gpu", "vulkan", "cuda", "metal", "opengl"):
        assert hasattr(ti, name)


def test_init_accepts_options_of_taichi(own_runtime):
    ti.init(arch=ti.gpu, offline_cache=False, kernel_profiler=False, debug=False, fast_math=False)
    x = ti.field(ti.f32, 2)
    x[1] = 2
    assert x[1] == 2
