"""Subscripts and attributes: arrays, vectors and matrices, slices, swizzles, lists."""

import linecache

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, define, lower, run
from vkchi.errors import CompilationError
from vkchi.frontend.syntax.source import source_of
from vkchi.ir.core import walk

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_components_of_memory_are_read_alone():
    v = Field(np.arange(6, dtype=np.float32).reshape(2, 3), element_axes=1)

    def k() -> ti.f32:
        return v[1].y + v[0][2]

    ops = [op.kind for op in walk(lower(k).func.body)]
    assert "extract" not in ops and ops.count("member") == 2
    assert run(k) == 6.0


def test_indices_of_every_kind():
    x = Field(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    scalar = Field(np.array(7, np.int32))

    def k(y: ti.types.ndarray(), i: ti.i64, b: ti.u8) -> ti.i32:
        I = ti.Vector([1, 2, 3])
        at = ti.static((1, 2))
        total = x[I] + x[1, 2, 3] + x[i, i, b] + x[at, 3]
        total += scalar[None] + y[(1,)]
        return total

    want = 23 + 23 + x.data[1, 1, 2] + 23 + 7 + 6
    assert run(k, np.array([5, 6], np.int32), 1, 2) == want


def test_vectors_in_memory_and_in_variables_are_written_alike():
    m = Field(MATRIX.reshape(1, 2, 3).copy(), element_axes=2)
    v = Field(np.zeros((1, 4), np.float32), element_axes=1)

    def k(i: ti.i32):
        a, w = ti.Matrix([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), ti.Vector([0.0, 0.0, 0.0, 0.0])
        a[0, 1], m[0][0, 1] = 10, 10
        a[1, :] = [7, 8, 9]
        m[0][1, :] = [7, 8, 9]
        a[:, 2] += 100
        m[0][:, 2] += 100
        a[i, i] *= 2
        m[0][i, i] *= 2
        w.xz, v[0].xz = [1, 2], [1, 2]
        w.wy, v[0].wy = w.zx, v[0].zx
        w[i] -= 0.5
        v[0][i] -= 0.5
        w.rg += 1
        v[0].rg += 1
        m[0] += a
        v[0] += w

    run(k, 1)
    want = np.array([[0, 10, 102], [7, 16, 109]], np.float32)
    np.testing.assert_array_equal(m.data[0], want * 2)
    np.testing.assert_array_equal(v.data[0], 2 * np.array([2, 1.5, 2, 2], np.float32))


def test_slices():
    def k(i: ti.i32) -> ti.types.vector(8, ti.f32):
        m = ti.Matrix([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        r, c, block, dyn = m[1, :], m[:, 1], m[:, 1:3], m[i, 0:2]
        v = ti.Vector([6.0, 7.0, 8.0, 9.0])[1:4:2]
        return ti.Vector([r[2], c[0], block[1, 0], block[0, 1], dyn[1], v[1], m[i, i], m[0, i]])

    np.testing.assert_array_equal(run(k, 1), [5, 1, 4, 2, 4, 9, 4, 1])


def test_attributes_of_arrays():
    x = Field(np.zeros((4, 5, 3), np.float32), element_axes=1)
    x.grad = Field(np.ones((4, 5, 3), np.float32), element_axes=1)

    def k(y: ti.types.ndarray(ti.types.vector(2, ti.f32))) -> ti.f32:
        total = x.shape[0] * 1000 + x.shape[1] * 100 + y.shape[0] * 10 + y.n
        total += len(y) + len(x.shape)
        return total + x.grad[0, 0].x

    y = np.zeros((6, 2), np.float32)
    assert run(k, y) == 4000 + 500 + 60 + 2 + 6 + 2 + 1


def test_gradients_of_arguments():
    def k(y: ti.types.ndarray()):
        y.grad[0] = y[0] * 2

    lowered = lower(k, np.zeros(1, np.float32))
    assert lowered.bindings["y.grad"] == ("grad", "y")


def test_python_vectors():
    g, table, unit = ti.Vector([0.0, -9.8]), [[1, 2], [3, 4]], ti.Vector([1, 0])

    def k(x: ti.f32, i: ti.i32) -> ti.f32:
        offset = ti.static(unit)
        return (g * x).y + g[i] + table[offset[0]][offset.y] + offset.cast(ti.f32).norm()

    assert run(k, 2.0, 1) == pytest.approx(-19.6 - 9.8 + 3 + 1)


def test_columns_are_right_where_text_is_not_ascii():
    k = define("def k(x: ti.f32):\n    'π'; y = 'é' if x else nothing\n")
    with pytest.raises(CompilationError) as e:
        lower(k, 1.0)
    assert e.value.span.col == 28 and e.value.span.end_col == 35


def test_spans_in_classes_and_after_odd_indentation():
    text = (
        "class A:\n"
        "  class B:\n"
        "      @ti.template\n"
        "      def k(\n"
        "  self):\n"
        "# a comment on the left\n"
        "        '''text\n"
        "on the left'''\n"
        "        return (1 +\n"
        "  nothing)\n"
    )
    file = "<odd>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"ti": type("T", (), {"template": staticmethod(lambda f: f)})}
    exec(compile(text, file, "exec"), names)
    fn = names["A"].B.k
    with pytest.raises(CompilationError) as e:
        lower(fn, None)
    assert e.value.span[:5] == (file, 10, 3, 10, 10)
    assert source_of(fn) is source_of(fn)


def test_changed_files_are_noticed():
    k = define("def k():\n    pass\n")
    linecache.cache[k.__code__.co_filename] = (9, None, ["x = 1\n", "y = 2\n"], "")
    with pytest.raises(CompilationError, match="is not what stands in its file now"):
        lower(k)
