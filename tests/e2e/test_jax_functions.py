"""Python functions of several kernels as functions of JAX."""

import numpy as np
import pytest

import vkchi as ti

jax = pytest.importorskip("jax", "0.4.34")
jnp = jax.numpy
pytestmark = pytest.mark.device
A = ti.types.ndarray


@ti.kernel
def copy(a: A(), b: A()):
    for i in a:
        b[i] = a[i]


@ti.kernel
def multiply(a: A(), w: A(), b: A()):
    for i in a:
        b[i] = a[i] * w[i]


def power(x, w, n: int, y):
    """y = x * w ** n, in a loop of Python."""
    made = ti.ndarray(ti.f32, x.shape, needs_grad=True)
    copy(x, y)
    for _ in range(n):
        multiply(y, w, made)
        copy(made, y)


@pytest.fixture
def op():
    return ti.jax_op(power, outputs={"y": "x"})


X, W = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 1.5, 2.0])


def is_near(found, want):
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_values_and_gradients(op):
    is_near(op(X, W, 3), X * W**3)
    found = jax.grad(lambda x, w: (op(x, w, 3) * X).sum(), (0, 1))(X, W)
    is_near(found[0], X * W**3)
    is_near(found[1], X * X * 3 * W**2)
    is_near(jax.grad(lambda w: op(X, w=w, n=2).sum())(W), 2 * X * W)


def test_transformations(op):
    run = jax.jit(lambda x, w: (op(x, w, 2) * op(2 * x, w, 1)).sum())
    is_near(jax.jit(jax.grad(run))(X, W), 4 * X * W**3)
    batch = jnp.stack([X, 2 * X])
    is_near(jax.vmap(op, (0, None, None))(batch, W, 2), batch * W**2)
    found = jax.vmap(jax.grad(lambda x: op(x, W, 2).sum()))(batch)
    is_near(found, jnp.broadcast_to(W**2, (2, 3)))
    _, pull = jax.vjp(lambda x: op(x, W, 1), X)
    op(5 * X, W, 3)
    is_near(pull(X)[0], W * X)
    is_near(pull(W)[0], W * W)
    steps = jax.lax.scan(lambda x, _: (op(x, W, 1), None), X, None, length=3)[0]
    is_near(steps, X * W**3)


def test_outputs_of_other_types_have_no_gradient():
    @ti.kernel
    def count(x: A(), k: A(), y: A(), n: A()):
        for i in x:
            y[k[i]] += x[i] ** 2
            n[k[i]] += 1

    made = ti.jax_op(
        lambda x, k, y, n: count(x, k, y, n),
        outputs={"y": "x", "n": lambda given: jax.ShapeDtypeStruct((3,), jnp.int32)},
    )
    k = jnp.array([0, 0, 2])
    assert made(X, k)[1].tolist() == [2, 0, 1]
    is_near(jax.grad(lambda x: made(x, k)[0].sum())(X), 2 * X)


def refused(match, run, *args):
    made = ti.jax_op(run, outputs={"y": "x"})
    with pytest.raises(Exception, match=match):
        jax.block_until_ready(jax.grad(lambda x: made(x, *args).sum())(X))


def test_functions_that_do_not_depend_on_their_arguments_alone():
    field, ndarray = ti.field(ti.f32, 3, needs_grad=True), ti.ndarray(ti.f32, 3, needs_grad=True)

    @ti.kernel
    def scale(x: A(), y: A()):
        for i in x:
            y[i] = x[i] * field[i]

    @ti.kernel
    def drop(x: A(), y: A()):
        for i in x:
            y[i] = x[i] * ti.random()

    calls = []

    def count(x, y):
        calls.append(1)
        w = ti.ndarray(ti.f32, 3)
        w.fill(len(calls))
        multiply(x, w, y)

    refused("accesses `field`", lambda x, y: scale(x, y))
    refused("accesses `w`", lambda x, y: multiply(x, ndarray, y))
    refused("draws random numbers", lambda x, y: drop(x, y))
    refused("gave another `y`", count)


def test_errors():
    def second(x):
        return jax.grad(lambda x: ti.jax_op(power, outputs={"y": "x"})(x, W, 2).sum())(x).sum()

    with pytest.raises(ti.ad.GradientError, match="can be differentiated once"):
        jax.grad(second)(X)
    with pytest.raises(TypeError, match="has a default"):
        ti.jax_op(lambda x, y, n=3: None, outputs={"y": "x"})
    refused("last written by Python", lambda x, y: y.from_numpy(x.to_numpy()))
