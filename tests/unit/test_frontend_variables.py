"""Variables: types that stay, scopes, unpacking, lists, augmented assignment, arguments."""

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, Func, define, lower, run


def test_a_variable_keeps_its_first_type():
    def k() -> ti.i32:
        a = 1
        a = 2.9
        return a

    assert run(k) == 2


def test_annotated_variables():
    def k(x: ti.f32) -> ti.i32:
        v: ti.i32 = x * 2.0
        return v

    assert run(k, 1.9) == 3


@pytest.mark.parametrize(
    ("op", "start", "x", "want"),
    [
        ("+", -1, 0.5, -1), ("-", 5, 0.5, 5), ("*", 5, 1.5, 7), ("/", 7, 2, 3), ("//", 7, 2, 3),
        ("%", -7, 3, 2), ("**", 3, 2, 9), ("<<", 3, 2, 12), (">>", -8, 1, -4), ("&", 6, 3, 2),
        ("|", 6, 3, 7), ("^", 6, 3, 5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["variable", "memory"])
def test_augmented_assignment(op, start, x, want, where):
    """`+=` and `-=` convert the addend first, as Taichi does; the others convert the result."""
    cell = Field(np.array(start, np.int32))
    if where == "variable":
        k = define(f"def k() -> ti.i32:\n    a = {start}\n    a {op}= {x}\n    return a\n")
        assert run(k) == want
    else:
        k = define(f"def k():\n    cell[None] {op}= {x}\n", cell=cell)
        run(k)
        assert cell.data == want


def test_augmented_assignment_to_memory_is_atomic_where_that_is_an_op():
    x = Field(np.zeros((4, 2), np.float32), element_axes=1)

    def k():
        for i in range(4):
            x[i] += [1, 2]
            x[i] -= 0.5
            x[i].y += 1
            x[0][1] -= 2

    run(k)
    np.testing.assert_array_equal(x.data, [[0.5, -5.5], *[[0.5, 2.5]] * 3])


def test_unpacking():
    x = Field(np.zeros(8, np.float32))

    def k():
        a, b = 1, 2.5
        a, b = b, a
        x[0], x[1] = a, b
        v = ti.Vector([3.0, 4.0, 5.0])
        p, q, r = v
        x[2], x[3], x[4] = r, q, p
        (s, t), u = [6, 7], 8
        x[5], x[6], x[7] = u, t, s

    run(k)
    assert x.data.tolist() == [2, 1, 5, 4, 3, 8, 7, 6]


def test_lists_hold_variables():
    def k(n: ti.i32) -> ti.f32:
        w = [1.0, 2.0, [3.0, 4.0]]
        for i in range(n):
            w[0] += 1
            if i > 1:
                w[2][1] = w[0] * 10
        w[1] = 7
        return w[0] + w[1] + w[2][0] + w[2][1]

    assert run(k, 4) == 5 + 7 + 3 + 50


def test_lists_grow_at_compile_time():
    def k(x: ti.f32) -> ti.f32:
        w = []
        for i in ti.static(range(3)):
            w.append(x + i)
        return w[0] * w[1] * w[2] + len(w)

    assert run(k, 1.0) == 9.0


def test_lists_are_copied_when_bound():
    def k() -> ti.i32:
        a = [1, 2]
        b = a
        b[0] = 5
        return a[0]

    assert run(k) == 1


def test_shared_lists_are_copied_when_read():
    x = Field(np.arange(4, dtype=np.int32))

    @Func
    def change(w):
        w[0] = 100
        return w[0]

    def k() -> ti.i32:
        w = [0, 1]
        for i in x:
            w[0] += x[i]
        b = w
        b[0] = 50
        return w[0] * 1000 + change(w) + b[0]

    assert run(k) == 6150


def test_chained_targets_are_separate():
    def k() -> ti.i32:
        a = b = 3
        b += 1
        return a * 10 + b

    assert run(k) == 34


def test_scalar_fills_a_vector():
    def k() -> ti.types.vector(3, ti.f32):
        v = ti.Vector([1.0, 2.0, 3.0])
        v = 5
        v[1] = 7
        return v

    np.testing.assert_array_equal(run(k), [5, 7, 5])


def test_names_of_ended_blocks_can_be_new_variables():
    def k(x: ti.i32) -> ti.f32:
        if x > 0:
            q = 1
        for i in range(3):
            q = 2
        q = 2.5
        return q

    assert run(k, 3) == 2.5


def test_static_names_are_aliases():
    x = Field(np.arange(4, dtype=np.float32))

    def k() -> ti.f32:
        y, n = ti.static(x, 3)
        total = 0.0
        for i in ti.static(range(n)):
            total += y[i]
        return total

    assert run(k) == 3.0


def test_kernel_variables_that_a_parallel_loop_assigns_are_shared():
    x = Field(np.arange(10, dtype=np.int32))

    def k() -> ti.types.vector(2, ti.i32):
        total, first = 0, ti.Vector([0, 0])
        for i in x:
            total += x[i]
            first[1] += 1
            if i == 3:
                first.x = x[i]
        total *= 10
        return ti.Vector([total, first.x * 100 + first.y])

    np.testing.assert_array_equal(run(k), [450, 310])


def test_numpy_numbers_are_numbers():
    n, f = np.int64(3), np.float64(0.5)

    def k() -> ti.f32:
        return n * f

    assert run(k) == 1.5


def test_tensor_arguments_and_results():
    vec = ti.types.vector(2, ti.f32)

    def k(v: vec, s: ti.f64) -> (vec, ti.i32):
        return v * 2, s * 3

    v, s = run(k, np.array([1, 2], np.float32), 1.5)
    np.testing.assert_array_equal(v, [2, 4])
    assert s == 4


def test_names_of_parameters():
    """A captured array is called as the program calls it, made unique."""
    x = Field(np.zeros(2, np.float32))
    x.grad = Field(np.zeros(2, np.float32))

    class Scene:
        x = Field(np.zeros(2, np.float32))

    scene = Scene()

    def k(y: ti.types.ndarray(), z: ti.types.ndarray()):
        for i in x:
            x[i] = scene.x[i] + y[i] + x.grad[i]

    lowered = lower(k, np.zeros(2, np.float32), np.zeros(2, np.float32))
    assert list(lowered.bindings) == ["y", "z", "x", "x_2", "x.grad"]
    assert lowered.bindings["x_2"] == ("field", scene.x)


def test_variable_dependencies():
    class Settings:
        def __init__(self):
            self.n, self.parts = 3, [Field(np.zeros(3, np.float32)), 2.5]

    settings, scale = Settings(), 4.0

    def helper(v):
        return v * scale

    def k():
        for i in range(settings.n):
            settings.parts[0][i] = helper(settings.parts[1])

    lowered = lower(k)
    reads = lowered.dependencies.reads(k)
    captured = {(read.path.root.fn.__name__, str(read.path)): read.value for read in reads}
    assert captured["k", "settings.n"] == 3
    assert captured["helper", "scale"] == 4.0
    assert captured["k", "settings.parts[1]"] == 2.5
    assert [fn.__name__ for fn in lowered.dependencies.functions] == ["k", "helper"]


def test_by_value_and_by_reference():
    @Func
    def f(a, b: ti.template()):
        a += 1
        b += a

    x = Field(np.zeros(1, np.int32))

    def k() -> ti.i32:
        a, v = 1, ti.Vector([10, 20])
        for _ in range(3):
            f(a, v.y)
            f(a, x[0])
        f(a, a)
        return a * 1000 + v.y

    assert run(k) == 3026
    assert x.data[0] == 6
