"""Loops over rows of large tensors: the same results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz.programs import ALL, EXACT, generate
from tests.ops.cases import same_bits
from vkchi.ir.core import Func, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.opt.lowering.tensor_loops import loop_over_rows
from vkchi.target import tuning


@pytest.fixture(autouse=True, params=[(2, 64, 16), (512, 64, 16), (512, 1, 2)])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of two components are large."""
    monkeypatch.setattr(tuning, "LARGE_TENSOR", 1)
    for name, value in zip(("STRAIGHT_TENSOR", "LONG_ROW", "PART_OF_ROW"), request.param):
        monkeypatch.setattr(tuning, name, value)


def make(body: str) -> Func:
    arrays = ", ".join(
        f"%{name}: array<f32<{shape}>[2] @(1%0*{n};{','.join(map(str, range(n)))};{2 * n};)>"
        for name, shape, n in (("a", "2x3", 6), ("b", "3x2", 6), ("c", "2x2", 4), ("v", "3", 3))
    )
    text = f"func @f({arrays}) {{\n  %c0 = const 0 : i32\n  %c2 = const 2 : i32\n"
    text += "  parallel %c0, %c2 {\n    ^(%i: i32)\n"
    for name, shape in (("a", "2x3"), ("b", "3x2"), ("c", "2x2"), ("v", "3")):
        text += f"    %p{name} = elem %{name}, %i : ptr<f32<{shape}> global>\n"
        text += f"    %x{name} = load %p{name} : f32<{shape}>\n"
    fn = parse_func(text + body + "    yield\n  }\n  yield\n}\n")
    verify(fn)
    return fn


def arguments() -> dict[str, Any]:
    shapes = {"a": (2, 2, 3), "b": (2, 3, 2), "c": (2, 2, 2), "v": (2, 3)}
    random = np.random.default_rng(5)
    return {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def check(body: str) -> Func:
    fn = make(body)
    new = loop_over_rows(fn)
    verify(new)
    want, got = run_reference(fn, arguments()), run_reference(new, arguments())
    assert all(np.all(same_bits(want[k], got[k])) for k in want), print_func(new)
    return new


def test_product_of_matrices() -> None:
    fn = check("    %r = matmul %xa, %xb : f32<2x2>\n    store %pc, %r\n")
    assert all(op.type.size <= 2 for op in walk(fn.body) if op.kind == "matmul")


def test_product_in_place() -> None:
    fn = check("    %r = matmul %xc, %xc : f32<2x2>\n    store %pc, %r\n")
    assert any(op.kind == "local" for op in walk(fn.body)), "%c is stored while it is read"


def test_elementwise_ops_in_place() -> None:
    fn = check("    %r = add %xc, %xc : f32<2x2>\n    %s = neg %r : f32<2x2>\n    store %pc, %s\n")
    assert not any(op.kind == "local" for op in walk(fn.body))
    check(
        "    %r = mul %xc, %xc : f32<2x2>\n    store %pc, %r\n    %s = add %xc, %xc : f32<2x2>\n"
        "    store %pc, %s\n"
    )


def test_transposed_in_place() -> None:
    check("    %t = transpose %xc : f32<2x2>\n    %r = add %t, %xc : f32<2x2>\n    store %pc, %r\n")


def test_swap() -> None:
    body = "    %q = elem %c, %c0 : ptr<f32<2x2> global>\n    %y = load %q : f32<2x2>\n"
    check(body + "    store %q, %xc\n    store %pc, %y\n")


def test_a_store_in_a_branch_between_load_and_use() -> None:
    body = "    %on = eq %i, %c0 : u1\n    if %on {\n      store %pc, %z\n      yield\n    } {\n"
    body = "    %z = add %xc, %xc : f32<2x2>\n" + body + "      yield\n    }\n"
    check(body + "    %r = matmul %xc, %z : f32<2x2>\n    store %pc, %r\n")


def test_users_in_a_loop() -> None:
    body = "    %r = for %c0, %c2, %xc : f32<2x2> {\n      ^(%k: i32, %m: f32<2x2>)\n"
    body += "      %n = matmul %m, %xc : f32<2x2>\n      %o = matmul %xc, %n : f32<2x2>\n"
    check(body + "      store %pc, %n\n      yield %o\n    }\n    store %pc, %r\n")


def test_results_with_several_users() -> None:
    body = "    %r = matmul %xa, %xb : f32<2x2>\n    %s = mul %r, %r : f32<2x2>\n"
    body += "    %t = add %s, %r : f32<2x2>\n    %u = matmul %t, %s : f32<2x2>\n"
    check(body + "    %g = sum %u : f32\n    %w = splat %g : f32<2x2>\n    store %pc, %w\n")


def test_product_with_a_transposed_matrix() -> None:
    check(
        "    %t = transpose %xa : f32<3x2>\n    %r = matmul %xa, %t : f32<2x2>\n    store %pc, %r\n"
    )


def test_product_with_a_vector_and_its_sum() -> None:
    body = "    %t = matmul %xa, %xv : f32<2>\n    %o = outer %t, %t : f32<2x2>\n"
    body += "    %s = sum %o : f32\n    %z = splat %s : f32<2x2>\n    %r = add %z, %xc : f32<2x2>\n"
    check(body + "    store %pc, %r\n")


def test_a_load_before_a_store_keeps_its_value() -> None:
    body = "    %one = const [1.0, 2.0, 3.0] : f32<3>\n    %t = add %xv, %one : f32<3>\n"
    body += "    store %pv, %t\n    %u = mul %xv, %t : f32<3>\n    %w = load %pv : f32<3>\n"
    check(body + "    %y = sub %u, %w : f32<3>\n    store %pv, %y\n")


def test_components_and_variables() -> None:
    body = "    %e = extract %xc [2] : f32\n    %t = insert %xc, %e [1] : f32<2x2>\n"
    body += "    %g = extract_at %xa, %i : f32\n    %l = local %t : ptr<f32<2x2> local>\n"
    body += "    %k = member_at %l, %i : ptr<f32 local>\n    store %k, %g\n"
    body += "    %d = load %l : f32<2x2>\n    %h = atomic_add %pc, %d : f32<2x2>\n"
    check(body)


def test_tensors_that_loops_carry() -> None:
    body = "    %r = for %c0, %c2, %xc : f32<2x2> {\n      ^(%k: i32, %m: f32<2x2>)\n"
    body += "      %n = mul %m, %xc : f32<2x2>\n      %o = add %n, %m : f32<2x2>\n"
    check(body + "      yield %o\n    }\n    store %pc, %r\n")


@pytest.mark.parametrize("seed", range(120))
def test_random_programs(seed: int) -> None:
    case = generate(seed, ALL if seed % 3 else EXACT)
    new = loop_over_rows(case.fn)
    verify(new)
    want, got = (run_reference(f, case.args()) for f in (case.fn, new))
    assert all(np.all(same_bits(want[name], got[name])) for name in want)
