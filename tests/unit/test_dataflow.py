"""The solver of `analysis.dataflow`: flow through branches, loops and memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from vkchi.analysis.dataflow import Dependence, Flow, closure
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.text import parse

# --- closures ------------------------------------------------------------------------------------


def test_a_closure_has_its_start_and_all_successors() -> None:
    edges = {1: [2, 3], 2: [4], 3: [], 4: [1], 9: [1]}
    assert closure([1], lambda n: edges[n]) == {1, 2, 3, 4}
    assert closure([], lambda n: edges[n]) == set()


def test_each_node_of_a_cycle_is_visited_once() -> None:
    seen: list[int] = []

    def follow(n: int) -> list[int]:
        seen.append(n)
        return [(n + 1) % 100, n, (n * 7) % 100]

    assert closure([0], follow) == set(range(100))
    assert sorted(seen) == list(range(100))


def test_a_long_chain_takes_no_stack() -> None:
    assert len(closure([0], lambda n: [n + 1] if n < 100_000 else [])) == 100_001


# --- values and memory ---------------------------------------------------------------------------

HEAD = """func @f(%x: array<f32[?]>, %y: array<f32[?]>, %a: i32, %b: i32) {
  %zero = const 0 : i32
  %one = const 1 : i32
  %four = const 4 : i32
"""


def func(body: str) -> Func:
    """A Func of x, y, a and b with this body."""
    (fn,) = parse(HEAD + body + "  yield\n}\n").funcs
    return fn


def by_name(fn: Func) -> dict[str, Value]:
    """Its values."""
    found: dict[str, Value] = {p.name: p for p in fn.params}
    for op in walk(fn.body):
        found.update((v.name, v) for v in op.results)
        found.update((p.name, p) for r in op.regions for p in r.params)
    return found


def names(values: Iterable[Value]) -> set[str]:
    return {v.name for v in values}


def flow(body: str, *seeds: str) -> set[str]:
    """Values that follow from these, but for themselves."""
    fn = func(body)
    values = by_name(fn)
    return names(Flow(fn.body, [values[s] for s in seeds]).found) - set(seeds)


def dependence(body: str, *seeds: str) -> set[str]:
    """Values that depend on these, but for themselves."""
    fn = func(body)
    values = by_name(fn)
    return names(Dependence(fn.body, [values[s] for s in seeds]).found) - set(seeds)


STRAIGHT = """  %c = add %a, %one : i32
  %d = mul %c, %b : i32
  %e = add %b, %b : i32
"""
BRANCH = """  %t = lt %a, %b : u1
  %r, %s = if %t : i32, i32 {
    %c = add %a, %one : i32
    yield %c, %one
  } {
    yield %b, %four
  }
"""
NESTED = """  %t = lt %one, %four : u1
  %r = if %t : i32 {
    %s = if %t : i32 {
      yield %a
    } {
      yield %one
    }
    yield %s
  } {
    yield %b
  }
"""
LOOP = """  %r, %s = for %zero, %four, %a, %b : i32, i32 {
    ^(%i: i32, %u: i32, %v: i32)
    %w = add %v, %one : i32
    yield %w, %one
  }
"""
SWAP = """  %r, %s, %q = for %zero, %four, %a, %one, %one : i32, i32, i32 {
    ^(%i: i32, %u: i32, %v: i32, %w: i32)
    yield %w, %u, %v
  }
"""
WHILE = """  %r = while %a : i32 {
    ^(%u: i32)
    %t = lt %u, %b : u1
    yield %t
  } {
    ^(%v: i32)
    %w = add %v, %one : i32
    yield %w
  }
"""
MEMORY = """  %p = elem %x, %a : ptr<f32 global>
  %v = load %p : f32
  %q = elem %y, %b : ptr<f32 global>
  store %q, %v
  %o = elem %y, %one : ptr<f32 global>
  %w = load %o : f32
"""
PRIVATE = """  %l = local %a : ptr<i32 local>
  for %zero, %four {
    ^(%i: i32)
    %v = load %l : i32
    %w = add %v, %b : i32
    store %l, %w
    yield
  }
  %r = load %l : i32
"""
EMPTY = """  %t = lt %a, %b : u1
  if %t {
    yield
  } {
    yield
  }
  for %zero, %a {
    ^(%i: i32)
    yield
  }
"""
DECIDES = """  %t = lt %a, %one : u1
  %r = if %t : i32 {
    %c = add %one, %four : i32
    %p = elem %x, %zero : ptr<f32 global>
    %f = const 1.0 : f32
    store %p, %f
    yield %one
  } {
    yield %four
  }
  %q = elem %x, %b : ptr<f32 global>
  %v = load %q : f32
"""


@pytest.mark.parametrize(
    ("body", "seed", "found"),
    [
        (STRAIGHT, "a", "c d"), (STRAIGHT, "b", "d e"), (STRAIGHT, "zero", ""),
        (BRANCH, "a", "t c r"), (BRANCH, "b", "t r"), (BRANCH, "four", "s"),
        (NESTED, "a", "s r"), (NESTED, "b", "r"),
        (LOOP, "a", "u r"), (LOOP, "b", "v w u r s"), (LOOP, "w", "u r"),
        (SWAP, "a", "u v w r s q"), (WHILE, "a", "u t v w r"), (WHILE, "b", "t"),
        (MEMORY, "x", "v"), (MEMORY, "y", "w"), (MEMORY, "v", ""),
        (EMPTY, "a", "t"), (EMPTY, "x", ""),
    ],
)  # fmt: skip
def test_flow_through_ops_and_loops(body: str, seed: str, found: str) -> None:
    assert flow(body, seed) == set(found.split())


@pytest.mark.parametrize(
    ("body", "seed", "found"),
    [
        (STRAIGHT, "a", "c d"), (BRANCH, "t", "c r s"), (LOOP, "a", "u r"),
        (LOOP, "zero", "i u v w r s"), (WHILE, "b", "t u v w r"),
        (MEMORY, "x", "v y w"), (MEMORY, "b", "q y w"), (PRIVATE, "b", "w l v r"),
        (PRIVATE, "zero", "i v w l r"), (EMPTY, "a", "t i"), (DECIDES, "a", "t r c p f x v"),
    ],
)  # fmt: skip
def test_control_dependences(body: str, seed: str, found: str) -> None:
    assert dependence(body, seed) == set(found.split())


def test_writes_that_depend() -> None:
    fn = func(DECIDES)
    values = by_name(fn)
    (store,) = (op for op in walk(fn.body) if op.kind == "store")
    assert Dependence(fn.body, [values["a"]]).writes() == {store}
    assert Dependence(fn.body, [values["b"]]).writes() == set()


def test_reads_of_a_write_are_queried() -> None:
    fn = func(MEMORY)
    values = by_name(fn)
    found = Dependence(fn.body, [values["x"]], lambda op: ()).found
    assert names(found) == {"x", "v"}


class Backward(Flow):
    """A subclass that follows from results to operands."""

    def follow(self, v: Value) -> Iterable[Value]:  # type: ignore[override]
        return v.args if isinstance(v, Op) else ()


def test_backward_is_a_closure_too() -> None:
    fn = func(STRAIGHT)
    values = by_name(fn)
    assert names(Backward(fn.body, [values["d"]]).found) == {"d", "c", "a", "one", "b"}


def test_many_loops_one_in_another_come_to_an_end() -> None:
    depth, body, end = 12, "", ""
    inner: str = "%a"
    for k in range(depth):
        pad = "  " * (k + 1)
        body += (
            f"{pad}%r{k} = for %zero, %four, {inner} : i32 {{\n{pad}  ^(%i{k}: i32, %c{k}: i32)\n"
        )
        end = f"{pad}  yield %r{k + 1}\n{pad}}}\n" + end if k + 1 < depth else end
        inner = f"%c{k}"
    pad = "  " * depth
    body += f"{pad}  %last = add {inner}, %b : i32\n{pad}  yield %last\n{pad}}}\n"
    found = flow(body + end, "b")
    assert found == {"last", *(f"{s}{k}" for k in range(depth) for s in "rc")}
    assert isinstance(by_name(func(body + end))["a"], Param)
