"""Branches by the hundred, in a row and one inside another: drivers end the process for less."""

import linecache

import numpy as np
import pytest

import vkchi as ti
from vkchi.compiler import compile_kernel
from vkchi.errors import KernelSyntaxError
from vkchi.frontend.control.flow import MOST_NESTED
from vkchi.runtime import current_runtime
from vkchi.target import tuning

SIZE = 64
START = np.arange(SIZE, dtype=np.float32) / 8 + 1
MANY = 500  # of which no two are alike
SOME = 120  # lavapipe of Mesa 25 crashes where 82 nest


@pytest.fixture(scope="module")
def fields():
    """Fields: branch (c), operand (x), result (y)."""
    x, y = (ti.field(ti.f32, SIZE, needs_grad=True) for _ in range(2))
    return ti.field(ti.i32, SIZE), x, y


def make(text, fields, count):
    """The kernel `run` of this text, and the fields set up; c leads to every kind of place in
    `count` branches, and to none of them."""
    c, x, y = fields
    c.from_numpy(branch_of(count))
    x.from_numpy(START)
    y.fill(0)
    file = f"<branches {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"ti": ti, "c": c, "x": x, "y": y, "SIZE": SIZE}
    exec(compile(text, file, "exec"), names)
    return names["run"]


def branch_of(count):
    return np.linspace(0, count, SIZE).astype(np.int32)


KERNEL = "@ti.kernel\ndef run():\n    for i in range(SIZE):\n"


def elifs(count):
    head = "        if c[i] == 0: y[i] = 0.0\n"
    return KERNEL + head + "".join(
        f"        elif c[i] == {k}: y[i] = x[i] * {k}.0\n" for k in range(1, count)
    ) + "        else: y[i] = -1.0\n"  # fmt: skip


def test_long_elif_chains(fields):
    make(elifs(MANY), fields, MANY)()
    k = branch_of(MANY)
    np.testing.assert_array_equal(fields[2].to_numpy(), np.where(k < MANY, START * k, -1))


@pytest.mark.parametrize("leave", ["continue", "break"])
def test_leaving_a_loop(leave, fields):
    """Terms that are added before the iteration is left."""
    body = "".join(
        f"            if v == {k}: {leave}\n            s += {k % 3}\n" for k in range(SOME)
    )
    text = f"{KERNEL}        v = c[i]\n        s = 0\n        for j in range(2):\n{body}"
    make(f"{text}        y[i] = s\n", fields, SOME)()
    once = np.array([sum(k % 3 for k in range(stop)) for stop in branch_of(SOME)])
    is_twice = (leave == "continue") | (branch_of(SOME) == SOME)
    np.testing.assert_array_equal(fields[2].to_numpy(), once * np.where(is_twice, 2, 1))


def test_leaving_a_parallel_loop(fields):
    body = "".join(f"        if c[i] == {k}: continue\n        y[i] += x[i]\n" for k in range(MANY))
    make(KERNEL + body, fields, MANY)()
    np.testing.assert_array_equal(fields[2].to_numpy(), START * branch_of(MANY))


def returns(count):
    body = "".join(f"    if v == {k}: return a * {k}.0\n" for k in range(count))
    return f"@ti.func\ndef f(v, a):\n{body}    return -a\n{KERNEL}        y[i] = f(c[i], x[i])\n"


def test_early_returns(fields):
    make(returns(MANY), fields, MANY)()
    k = branch_of(MANY)
    np.testing.assert_array_equal(fields[2].to_numpy(), START * np.where(k < MANY, k, -1))


EXPRESSIONS = {  # of c[i], and its value in numpy
    "ternaries": (
        lambda n: "".join(f"x[{k % SIZE}] if v == {k} else " for k in range(n)) + "0.0",
        lambda v, n: np.where(v < n, START[v % SIZE], 0),
    ),
    "summed ternaries": (
        lambda n: "".join(f"1.0 + (x[{k % SIZE}] if v == {k} else " for k in range(n))
        + "0.0" + ")" * n,
        lambda v, n: np.where(v < n, v + 1 + START[v % SIZE], n),
    ),
    "and": (
        lambda n: "float(" + " and ".join(f"v != x[{k % SIZE}]" for k in range(n)) + ")",
        lambda v, n: ~np.isin(v, START),
    ),
    "or": (
        lambda n: "float(" + " or ".join(f"x[{k % SIZE}] == v" for k in range(n)) + ")",
        lambda v, n: np.isin(v, START),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_long_expressions(name, fields):
    text, want = EXPRESSIONS[name]
    count = SOME
    make(f"{KERNEL}        v = c[i]\n        y[i] = {text(count)}\n", fields, count)()
    np.testing.assert_array_equal(fields[2].to_numpy(), want(branch_of(count), count))


def test_unrolled_iterations_that_continue(fields):
    text = f"""{KERNEL}        for k in ti.static(range({SOME})):
            if c[i] == k: continue
            y[i] += x[i]
"""
    make(text, fields, SOME)()
    k = branch_of(SOME)
    np.testing.assert_array_equal(fields[2].to_numpy(), START * (SOME - (k < SOME)))


def test_unrolled_iterations_that_leave_the_loop(fields):
    text = f"""{KERNEL}        v = -1.0
        for k in ti.static(range({MANY})):
            if c[i] == k:
                v = x[i] * k
                break
        y[i] = v
"""
    make(text, fields, MANY)()
    k = branch_of(MANY)
    np.testing.assert_array_equal(fields[2].to_numpy(), np.where(k < MANY, START * k, -1))


def test_code_after_nested_branches(fields):
    """The deep one is followed by code at every level."""
    depth = 90
    lines = [" " * (2 + k) + f"if v >= {k}:\n" for k in range(depth)]
    lines.append(" " * (2 + depth) + "s += 1000.0\n")
    lines += [" " * (3 + k) + f"s = s * 0.5 + x[{k % SIZE}]\n" for k in reversed(range(depth))]
    text = "@ti.kernel\ndef run():\n for i in range(SIZE):\n  v = c[i]\n  s = x[i]\n"
    make(text + "".join(lines) + "  y[i] = s\n", fields, depth)()
    want = START.copy()
    for i, v in enumerate(branch_of(depth)):
        s = want[i] + np.float32(1000 if v >= depth - 1 else 0)
        for k in reversed(range(min(v + 1, depth))):
            s = s * np.float32(0.5) + START[k % SIZE]
        want[i] = s
    np.testing.assert_allclose(fields[2].to_numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("text", [elifs, returns], ids=["elifs", "returns"])
def test_gradients_of_many_branches(text, fields):
    run = make(text(SOME), fields, SOME)
    fields[1].grad.fill(0)
    fields[2].grad.fill(1)
    run.grad()
    k = branch_of(SOME)
    last = 0 if text is elifs else -1
    np.testing.assert_array_equal(fields[1].grad.to_numpy(), np.where(k < SOME, k, last))


@pytest.mark.parametrize("text", [elifs, returns], ids=["elifs", "returns"])
def test_too_many_branches_raise_at_their_line(text, fields):
    run = make(text(1100), fields, 1100)
    with pytest.raises(KernelSyntaxError, match="more than 1,000 branches nest") as caught:
        run()
    assert f"== {MOST_NESTED - 1}" in str(caught.value)


@pytest.mark.parametrize("depth", [60, 90])
def test_loops_in_loops_in_functions(depth, fields):
    """Loops are not made flat: as many as drivers bear work, more are refused."""
    functions = "".join(
        f"@ti.func\ndef f{k}(v, n):\n    for j in range(n): v = f{k - 1}(v + 1, n)\n    return v\n"
        for k in range(1, depth + 1)
    )
    text = f"@ti.func\ndef f0(v, n): return v\n{functions}{KERNEL}"
    run = make(f"{text}        y[i] = f{depth}(x[i], ti.min(c[i], 1))\n", fields, 2)
    if depth > tuning.DRIVERS_NESTING:
        with pytest.raises(KernelSyntaxError, match=r"more than 72 loops and branches nest here"):
            run()
        return
    run()
    want = START + np.where(branch_of(2) > 0, depth, 0)
    np.testing.assert_array_equal(fields[2].to_numpy(), want)


def test_sums_of_a_thousand_terms(fields):
    terms = " + ".join(["x[i]"] * 1000)
    make(f"{KERNEL}        y[i] = {terms}\n", fields, 1)()
    np.testing.assert_allclose(fields[2].to_numpy(), START * 1000, rtol=1e-4)


@pytest.mark.parametrize("op", ["if w > {k}: v = v * 0.5 + {k}.0", "while w > {k}: w -= 1"])
def test_thousands_of_constructs_in_a_row(op, fields):
    """Only compiled: a device is slow on code that no program has."""
    body = "".join(f"        {op.format(k=k)}\n" for k in range(1500))
    run = make(
        f"{KERNEL}        v = x[i]\n        w = c[i]\n{body}        y[i] = v + w\n", fields, 1
    )
    runtime = current_runtime()
    made = compile_kernel(run.__vkchi_func__, (), runtime.options, runtime.device.caps)
    assert len(made.artifact.dispatches) == 1
