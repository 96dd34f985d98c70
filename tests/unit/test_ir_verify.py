"""Verifier rules that text cannot break; the goldens in tests/golden/verify break the others."""

from __future__ import annotations

import re
import time

import pytest

from vkchi.errors import InternalError
from vkchi.ir import verify as module
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Program, Region, Result, walk
from vkchi.ir.ops import TABLE
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify, verify_program
from vkchi.types import Affine, Array, f32, i32, u1


def func_of(*ops: Op, params: tuple[Param, ...] = ()) -> Func:
    return Func("f", params, Region((), [*ops, Op("yield", (), None, None)]))


def refused(fn: Func, rule: int, text: str = "") -> None:
    with pytest.raises(InternalError, match=f"rule {rule} of valid IR: .*{re.escape(text)}"):
        verify(fn)


def one() -> Op:
    return Op("const", (), 1, i32)


def test_op_twice_in_a_region() -> None:
    op = one()
    refused(func_of(op, op), 4, "`const` stands in more than one place")


def test_op_in_two_regions() -> None:
    cond, op, end = Op("const", (), 1, u1), one(), Op("yield", (), None, None)
    branches = (Region((), [op, end]), Region((), [op, Op("yield", (), None, None)]))
    refused(func_of(cond, Op("if", (cond,), None, None, regions=branches)), 4)


def test_parameter_twice() -> None:
    p = Param(i32, "p")
    refused(func_of(params=(p, p)), 4)


def test_region_parameter_of_two_loops() -> None:
    n, i = one(), Param(i32, "i")
    loops = [
        Op("for", (n, n), None, None, regions=(Region((i,), [Op("yield", (), None, None)]),))
        for _ in range(2)
    ]
    refused(func_of(n, *loops), 4)


def test_argument_of_another_func() -> None:
    refused(func_of(Op("neg", (one(),), None, i32)), 3)


def test_argument_without_value() -> None:
    barrier = Op("barrier", (), None, None)
    refused(func_of(barrier, Op("neg", (barrier,), None, i32)), 2, "an op that has no value")
    fn = Func("f", (), Region((), [barrier, Op("yield", (barrier,), None, None)]))
    refused(fn, 5, "an op that has no value")


def test_stored_type_is_checked_even_if_the_op_was_seen() -> None:
    a = one()
    verify(func_of(a, Op("neg", (a,), None, i32)))
    refused(func_of(a, Op("neg", (a,), None, f32)), 2)


def test_results_of_another_op() -> None:
    n, end = one(), Op("yield", (), None, None)
    loop = Op("for", (n, n), None, None, regions=(Region((Param(i32),), [end]),))
    loop._several = (Result(one(), 0, i32),)
    refused(func_of(n, loop), 10)


def test_control_op_with_a_type() -> None:
    n, end = one(), Op("yield", (), None, None)
    loop = Op("for", (n, n), None, None, regions=(Region((Param(i32),), [end]),))
    loop.type = i32
    refused(func_of(n, loop), 10)


def test_bits_of_a_constant() -> None:
    refused(func_of(Op("const", (), 1.0, f32)), 6)
    refused(func_of(Op("const", (), True, u1)), 6)
    refused(func_of(Op("const", (), -1, i32)), 6)
    refused(func_of(Op("const", (), None, None)), 6)


def test_duplicate_and_odd_parameters() -> None:
    refused(func_of(params=(Param(i32, "a"), Param(f32, "a"))), 17, "'a'")
    refused(func_of(params=(Param(Array.of(f32, 1, (-1,)), "a"),)), 19)
    refused(func_of(params=(Param(Array.of(f32, 2, (1,)), "a"),)), 19)
    layout = Affine(((),), (0,), 1, (1, 2))
    refused(func_of(params=(Param(Array.of(f32, 1, (1,), layout), "a"),)), 19)


def test_shared_arrays_have_a_shape() -> None:
    t = Array.of(f32, 1, None, None, "shared")
    refused(func_of(Op("shared", (), None, t)), 2, "needs a shared array type of static shape")


def test_messages_quote_op_location_and_func() -> None:
    text = "func @g(%a: i32) {\n  %b = neg %a : i32\n  %c = neg %b : f32\n  yield\n}"
    with pytest.raises(InternalError) as caught:
        verify(parse_func(text, "g.chi"))
    assert str(caught.value) == (
        "g.chi:3:3: rule 2 of valid IR: `neg` makes i32, not f32\n"
        "    %c = neg %b : f32\n"
        "in func @g; this is a bug in vkchi, please report it"
    )


def test_a_program_of_one_func_is_not_split_yet() -> None:
    text = "func @f(%n: i32) {\n parallel %n, %n { ^(%i: i32) yield }\n fence\n yield }"
    verify_program(Program("f", (parse_func(text),)))


def test_every_rule_in_the_docstring_is_used_and_tested() -> None:
    source = open(module.__file__, encoding="utf-8").read()
    assert module.__doc__ is not None
    rules = {int(n) for n in re.findall(r"^ ?(\d+)\. ", module.__doc__, re.MULTILINE)}
    used = {int(n) for n in re.findall(r"\.(?:fail|same)\((\d+),", source)}
    assert rules == used == set(range(1, 23))


def test_every_row_has_a_form_of_attr() -> None:
    assert set(module._ATTRS) == set(TABLE)


@pytest.mark.budget
def test_verifier_speed() -> None:
    """The budget is 0.2 ms for 500 ops; ten times that is a mistake, not a slow machine."""
    b = Builder()
    x = Param(Array.of(f32, 1), "x")
    with b.region() as body:
        for k in range(100):
            p = b.emit("elem", x, b.const(k, i32))
            b.emit("store", p, b.emit("mul", b.emit("load", p), b.const(k, f32)))
        b.emit("yield")
    fn = Func("f", (x,), body)
    assert len(list(walk(body))) > 500
    verify(fn)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        verify(fn)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3
