"""Kernels as functions of JAX: `ti.jax_op`."""

import numpy as np
import pytest

import vkchi as ti

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
jnp = jax.numpy
pytestmark = pytest.mark.device


@ti.jax_op(outputs={"y": "x"})
@ti.kernel
def scale(x: ti.types.ndarray(), a: float, y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] ** 2


@ti.jax_op(
    outputs={
        "length": lambda given: given["p"].shape[:1],
        "kind": lambda given: jax.ShapeDtypeStruct(given["p"].shape[:1], jnp.int32),
    }
)
@ti.kernel
def project(
    p: ti.types.ndarray(dtype=ti.math.vec3),
    k: ti.types.ndarray(),
    v: ti.math.vec3,
    length: ti.types.ndarray(),
    kind: ti.types.ndarray(),
):
    for i in p:
        length[i] = p[i].dot(v) * k[i]
        kind[i] = 2 * k[i]


def total(x):
    return scale(x, 0.5).sum()


@pytest.mark.parametrize("n", [0, 1, 5])
def test_values_and_gradients(n):
    x = jnp.arange(float(n))
    for compiled in (lambda f: f, jax.jit):
        np.testing.assert_allclose(compiled(scale)(x, 0.5), 0.5 * x**2)
        np.testing.assert_allclose(compiled(jax.grad(total))(x), x)


def test_batches():
    x = jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(jax.vmap(scale, (0, None))(x, 2.0), 2 * x**2)
    np.testing.assert_allclose(jax.vmap(scale, (0, 0))(x, jnp.arange(3.0))[2], 2 * x[2] ** 2)
    np.testing.assert_allclose(jax.vmap(jax.grad(total))(x), x)


def test_several_outputs_vectors_and_integers():
    p = jnp.asarray(np.random.default_rng(0).random((5, 3)), jnp.float32)
    k, v = jnp.arange(5), (1.0, 2.0, 3.0)
    length, kind = project(p, k=k, v=v)
    np.testing.assert_allclose(length, p @ jnp.array(v) * k, rtol=1e-6)
    np.testing.assert_array_equal(kind, 2 * k)
    slope = jax.jit(jax.grad(lambda p: (project(p, k, v)[0] * k).sum()))(p)
    np.testing.assert_allclose(slope, np.outer(np.arange(5) ** 2, v))


def test_gradient_by_differences_inside_a_scan():
    def run(x):
        last, _ = jax.lax.scan(lambda x, _: (scale(x, 0.9) + 0.1 * x, None), x, None, length=3)
        return (last * jnp.arange(4.0)).sum()

    x, step = jnp.array([0.5, 0.8, 1.1, 0.9]), 1e-2
    expected = [(run(x.at[i].add(step)) - run(x.at[i].add(-step))) / (2 * step) for i in range(4)]
    np.testing.assert_allclose(jax.jit(jax.grad(run))(x), expected, rtol=2e-3, atol=1e-4)


def test_gradient_reads_outputs_after_the_kernel():
    @ti.jax_op(outputs={"y": "x"})
    @ti.kernel
    def exponential(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = ti.exp(x[i])
            y[i] = y[i] * y[i]

    x = jnp.array([0.1, 0.7])
    slope = jax.grad(lambda x: exponential(x).sum())(x)
    np.testing.assert_allclose(slope, 2 * jnp.exp(2 * x), rtol=1e-5)


def test_methods_of_objects():
    @ti.data_oriented
    class Model:
        def __init__(self):
            self.power = 3

        @ti.kernel
        def run(self, x: ti.types.ndarray(), y: ti.types.ndarray()):
            for i in x:
                y[i] = x[i] ** self.power

    raised = ti.jax_op(Model().run, outputs={"y": "x"})
    np.testing.assert_allclose(raised(jnp.array([2.0, 3.0])), [8, 27])


def test_gradients_of_values_are_errors():
    x = jnp.arange(3.0)
    with pytest.raises(
        ti.TaichiRuntimeError, match="the gradient of `a`, which is passed by value"
    ):
        jax.grad(lambda a: scale(x, a).sum())(0.5)
    stopped = jax.grad(lambda a: scale(x, jax.lax.stop_gradient(a)).sum() + a)(0.5)
    assert stopped == 1


def test_second_derivatives_are_errors():
    x = jnp.arange(3.0)
    with pytest.raises(RuntimeError, match="differentiated once"):
        jax.grad(lambda x: jax.grad(total)(x).sum())(x)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(total, (x,), (x,))


def test_impure_kernels_are_errors():
    weights = ti.field(ti.f32, 3)

    @ti.kernel
    def weigh(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = weights[i] * x[i]

    @ti.kernel
    def clear(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]
            x[i] = 0

    x = jnp.arange(3.0)
    with pytest.raises(TypeError, match="accesses `weights`\nhelp: pass what `weights` holds"):
        ti.jax_op(weigh, outputs={"y": "x"})(x)
    with pytest.raises(TypeError, match="writes `x`, which is an input"):
        ti.jax_op(clear, outputs={"y": "x"})(x)


def test_python_values_that_change_after_the_trace():
    class Settings:
        factor = 2.0

    @ti.jax_op(outputs={"y": "x"})
    @ti.kernel
    def multiply(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = Settings.factor * x[i]

    x = jnp.arange(3.0)
    run = jax.jit(multiply)
    np.testing.assert_allclose(run(x), 2 * x)
    _, back = jax.vjp(multiply, x)
    Settings.factor = 3.0
    with pytest.raises(Exception, match="was changed since JAX traced it"):
        jax.block_until_ready(run(x))
    with pytest.raises(Exception, match="was changed since JAX traced it"):
        jax.block_until_ready(back(x))
    np.testing.assert_allclose(multiply(x), 3 * x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: scale(x), "missing a required argument: 'a'"),
        (lambda x: scale("x", 1.0), "argument `x`: an array or a number is needed, not str 'x'"),
        (lambda x: scale(x, x), r"argument `a` has shape \(3,\), and \(\) is needed"),
        (lambda x: scale(x.astype(jnp.float8_e4m3fn), 1.0), "no type for numpy's float8_e4m3fn"),
        (lambda x: scale(x.reshape(1, 3), 1.0), "the array has 2 axes"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(Exception, match=message):
        call(jnp.arange(3.0))


def test_wrong_declarations():
    @ti.kernel
    def of_template(x: ti.types.ndarray(), k: ti.template(), y: ti.types.ndarray()):
        pass

    with pytest.raises(TypeError, match="JAX has no type for `k`"):
        ti.jax_op(of_template, outputs={"y": "x"})
    with pytest.raises(TypeError, match="has no array `z`"):
        ti.jax_op(of_template, outputs={"z": "x"})
    with pytest.raises(TypeError, match="jax_op takes a ti.kernel or a Python function"):
        ti.jax_op(3, outputs={"y": "x"})
    with pytest.raises(ValueError, match="is no size"):
        ti.jax_op(scale_kernel, outputs={"y": lambda given: (-1,)})(jnp.arange(3.0))
    with pytest.raises(ValueError, match="gave 3, no shape"):
        ti.jax_op(scale_kernel, outputs={"y": lambda given: 3})(jnp.arange(3.0))


@ti.kernel
def scale_kernel(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2 * x[i]
