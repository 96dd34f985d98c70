"""Loop rerolling: groups of ops become loops, with the same results bit for bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.fuzz.programs import ALL, EXACT, generate
from tests.ops.cases import same_bits
from vkchi.ir.core import Func, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.opt.loops.serial.reroll import affine, own_lengths, reroll
from vkchi.opt.pipeline import lower_dispatch, optimize_kernel
from vkchi.target import tuning
from vkchi.target.caps import FULL
from vkchi.target.options import Options
from vkchi.types import Array, integer_range, scalar_named

SIZE = 40
FIELD = f"[{SIZE}] @(1%0*1;0;{SIZE};)"
HEAD = f"""func @f(%x: array<f32{FIELD}>, %y: array<f32{FIELD}>, %w: array<i32{FIELD}>,
        %a: array<f32[?]>, %b: array<f32[?]>, %m: array<f32<3>[4] @(1%0*3;0,1,2;12;)>) {{
  %c0 = const 0 : i32
  %c5 = const 5 : i32
""".replace("\n        ", " ")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups are worth a loop."""
    monkeypatch.setattr(tuning, "REROLL_GROUPS", 3)
    monkeypatch.setattr(tuning, "REROLL_OPS", 2)
    monkeypatch.setattr(tuning, "REROLL_LOOPS", 3)
    monkeypatch.setattr(tuning, "REROLL_LOOP_OPS", 2)


def make(body: str, *, serial: bool = False) -> Func:
    loop = "" if serial else "  parallel %c0, %c5 {\n    ^(%i: i32)\n"
    text = HEAD + ("  %i = const 2 : i32\n" if serial else loop) + body
    fn = parse_func(text + ("" if serial else "    yield\n  }\n") + "  yield\n}\n")
    verify(fn)
    return fn


def arguments() -> dict[str, Any]:
    values: dict[str, Any] = {
        n: np.arange(SIZE, dtype=np.float32) * k for k, n in enumerate("xyab", 1)
    }
    values["w"] = np.arange(SIZE, dtype=np.int32)[::-1].copy()
    values["m"] = np.arange(12, dtype=np.float32).reshape(4, 3)
    return {name: values[name] for name in ("x", "y", "w", "a", "b", "m")}


def check(fn: Func) -> Func:
    """Rolled, whole and lowered, it does the same to memory; return the rolled Func."""
    rolled = reroll(fn)
    verify(rolled)
    want = run_reference(fn, arguments())
    got = run_reference(rolled, arguments())
    assert all(np.all(same_bits(want[k], got[k])) for k in want), print_func(rolled)
    return rolled


def depths_of(fn: Func) -> list[int]:
    """Trip counts of the `for` ops, in pre-order."""
    return [int(op.args[1].attr) for op in walk(fn.body) if op.kind == "for"]  # type: ignore[attr-defined]


def load(name: str, k: int, array: str = "x") -> str:
    return (
        f"    %k{name} = const {k} : i32\n"
        f"    %p{name} = elem %{array}, %k{name} : ptr<f32 global>\n"
        f"    %v{name} = load %p{name} : f32\n"
    )


def total(steps: list[int], factors: list[float]) -> str:
    """Store the sum of products of elements and factors, in order."""
    lines = "    %s0 = const 0.0 : f32\n"
    for g, (k, factor) in enumerate(zip(steps, factors)):
        lines += load(str(g), k) + f"    %f{g} = const {factor} : f32\n"
        lines += f"    %t{g} = mul %v{g}, %f{g} : f32\n    %s{g + 1} = add %s{g}, %t{g} : f32\n"
    return lines + (
        f"    %q = elem %y, %i : ptr<f32 global>\n    store %q, %s{len(steps)}\n"
    )  # fmt: skip


def test_sum_becomes_a_loop() -> None:
    fn = check(make(total(list(range(7)), [k + 1.0 for k in range(7)])))
    assert depths_of(fn) == [7]
    assert not any(op.kind == "extract_at" for op in walk(fn.body))


def test_constants_without_a_formula_become_a_table() -> None:
    fn = check(make(total([3, 1, 4, 1, 5, 9, 2], [0.3, -0.0, 2.5, 1e30, 0.1, 7.0, 1.0])))
    assert depths_of(fn) == [7]
    assert sum(op.kind == "extract_at" for op in walk(fn.body)) == 2


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_affine_constants_of_all_integer_types(name: str) -> None:
    """Their last and first values are the extreme ones, so that steps wrap."""
    t = scalar_named(name)
    least, most = integer_range(t)
    step = (most - least) // 4
    lines = ""
    for g in range(5):
        lines += f"    %c{g}.k = const {g} : i32\n    %v{g} = const {most - g * step} : {name}\n"
        lines += f"    %q{g} = elem %z, %c{g}.k : ptr<{name} global>\n    store %q{g}, %v{g}\n"
    fn = parse_func(f"func @f(%z: array<{name}[?]>) {{\n{lines}  yield\n}}\n")
    rolled = reroll(fn)
    verify(rolled)
    assert depths_of(rolled) == [5]
    assert not any(op.kind == "extract_at" for op in walk(rolled.body))
    found = run_reference(rolled, {"z": np.zeros(5, t.dtype)})["z"]
    assert found.tolist() == [most - g * step for g in range(5)]


def test_two_static_loops_become_two() -> None:
    steps = [10 * i + j for i in range(3) for j in range(4)]
    assert depths_of(check(make(total(steps, [1.0] * 12)))) == [3, 4]


def test_iterations_behind_the_last_whole_block_stay() -> None:
    steps = [10 * i + j for i in range(3) for j in range(4)] + [39]
    fn = check(make(total(steps, [1.0] * 13)))
    assert depths_of(fn) == [3, 4]


def test_values_that_are_used_later_are_kept_in_a_private_array() -> None:
    lines = "    %s0 = const 1.0 : f32\n"
    for g in range(6):
        lines += load(str(g), 2 * g + 1) + f"    %s{g + 1} = mul %s{g}, %v{g} : f32\n"
    for g in range(5, -1, -1):
        lines += f"    %d{g} = const {g} : i32\n    %q{g} = elem %y, %d{g} : ptr<f32 global>\n"
        lines += f"    store %q{g}, %s{g}\n"
    fn = check(make(lines, serial=True))
    assert len(depths_of(fn)) == 2
    assert sum(op.kind == "local" for op in walk(fn.body)) == 1


def test_loads_move_to_their_user_unless_memory_is_written() -> None:
    """`a` and `b` may be one array; `x` is another one than `y`."""
    for array, target, loops in (("x", "y", 1), ("a", "b", 2)):
        lines = "".join(load(str(g), g, array) for g in range(5))
        for g in range(5):
            lines += f"    %d{g} = const {4 - g} : i32\n"
            lines += f"    %q{g} = elem %{target}, %d{g} : ptr<f32 global>\n"
            lines += f"    store %q{g}, %v{g}\n"
        fn = check(make(lines, serial=True))
        assert len(depths_of(fn)) == loops, print_func(fn)


def test_components_become_computed() -> None:
    lines = "    %pm = elem %m, %c0 : ptr<f32<3> global>\n    %vm = load %pm : f32<3>\n"
    for g in range(3):
        lines += f"    %e{g} = extract %vm [{g}] : f32\n"
        lines += f"    %q{g} = member %pm [{2 - g}] : ptr<f32 global>\n"
        lines += f"    store %q{g}, %e{g}\n"
    fn = check(make(lines, serial=True))
    assert depths_of(fn) == [3]


def test_dispatches_and_shared_arrays_stay() -> None:
    lines = "".join(
        f"  parallel %c0, %c5 {{\n    ^(%i{g}: i32)\n    yield\n  }}\n" for g in range(9)
    )
    fn = make(lines, serial=True)
    assert reroll(fn) is fn


def test_series() -> None:
    assert own_lengths([0, 1, 2]) == (3,)
    assert own_lengths([0, 1, 5, 6, 10, 11]) == (3, 2)
    assert own_lengths([0, 1, 3, 7, 5, 2]) is None
    assert affine([1, 2, 11, 12], (2, 2)) == [1, 10, 1]
    assert affine([1, 2, 11, 13], (2, 2)) is None


# --- random programs -----------------------------------------------------------------------------


class Template:
    """A random group: lines for each repetition, which use constants, values of the group, of the
    previous one, and of before."""

    def __init__(self, seed: int) -> None:
        r = self.r = random.Random(seed)
        self.count = r.choice([3, 4, 5, 6, 8, 9, 12])
        self.kinds = [
            r.choice(["load", "add", "add", "mul", "store", "atomic", "if", "for", "later"])
            for _ in range(r.randint(1, 6))
        ]
        self.inner = r.choice([1, 2, 3])
        self.series = [self.make_series() for _ in self.kinds]
        self.arrays = [r.choice("xyab") for _ in self.kinds]
        self.picks = [r.random() for _ in self.kinds]
        self.odd = r.randrange(self.count) if r.random() < 0.4 else -1
        self.later: list[str] = []

    def make_series(self) -> list[int]:
        r, n = self.r, self.count
        a, b, m = r.randint(-2, 2), r.randint(-3, 3), r.choice([1, 2, 3, 4])
        found = r.choice(
            [
                [7] * n,
                [a * g for g in range(n)],
                [a * (g // m) + b * (g % m) for g in range(n)],
                [r.randrange(SIZE) for _ in range(n)],
            ]
        )
        return [v % SIZE for v in found]

    def lines(self) -> str:
        out = "    %u0 = const 0.5 : f32\n    %p.s = elem %x, %i : ptr<f32 global>\n"
        out += "    %u1 = load %p.s : f32\n"
        values, last = ["%u0", "%u1"], "%u1"
        for g in range(self.count):
            own: list[str] = []
            if g == self.odd:
                out += f"    %odd = add {last}, %u0 : f32\n"
                values.append("%odd")
            for k, kind in enumerate(self.kinds):
                name, c, array = f"{g}.{k}", self.series[k][g], self.arrays[k]
                choices = [last, *values[:2], *own]
                v = choices[int(self.picks[k] * len(choices))]
                out += f"    %c.{name} = const {c} : i32\n    %f.{name} = const {c / 2} : f32\n"
                out += f"    %p.{name} = elem %{array}, %c.{name} : ptr<f32 global>\n"
                if kind == "load":
                    out += f"    %v.{name} = load %p.{name} : f32\n"
                elif kind in ("add", "mul"):
                    w = last if k % 2 else f"%f.{name}"
                    out += f"    %v.{name} = {kind} {v}, {w} : f32\n"
                elif kind == "store":
                    out += f"    store %p.{name}, {v}\n"
                elif kind == "atomic":
                    out += f"    %v.{name} = atomic_add %p.{name}, {v} : f32\n"
                elif kind == "if":
                    out += f"    %t.{name} = lt {v}, %f.{name} : u1\n"
                    out += f"    %v.{name} = if %t.{name} : f32 {{\n      store %p.{name}, {v}\n"
                    out += f"      yield %f.{name}\n    }} {{\n      yield {last}\n    }}\n"
                elif kind == "for":
                    out += f"    %n.{name} = const {self.inner} : i32\n"
                    out += f"    %v.{name} = for %c0, %n.{name}, {v} : f32 {{\n"
                    out += f"      ^(%j.{name}: i32, %z.{name}: f32)\n"
                    out += f"      %o.{name} = elem %{array}, %j.{name} : ptr<f32 global>\n"
                    out += f"      %l.{name} = load %o.{name} : f32\n"
                    out += f"      %y.{name} = add %z.{name}, %l.{name} : f32\n"
                    out += f"      yield %y.{name}\n    }}\n"
                else:
                    out += f"    %v.{name} = sub {v}, %f.{name} : f32\n"
                    self.later.append(f"%v.{name}")
                if kind != "store":
                    own.append(f"%v.{name}")
            last = own[-1] if own else last
        self.r.shuffle(self.later)
        ends = [last, *(self.later if self.r.random() < 0.7 else self.later[:1])]
        for k, v in enumerate(ends[:SIZE]):
            out += f"    %k.{k} = const {k} : i32\n    %q.{k} = elem %b, %k.{k} : ptr<f32 global>\n"
            out += f"    store %q.{k}, {v}\n"
        return out


@pytest.mark.parametrize("seed", range(150))
def test_random_groups(seed: int) -> None:
    """In serial code, where the order of effects is fixed; atomics included."""
    check(make(Template(seed).lines(), serial=True))


def test_random_groups_are_rolled() -> None:
    """The generator's programs are not trivial."""
    fns = [make(Template(seed).lines(), serial=True) for seed in range(60)]
    assert sum(reroll(fn) is not fn for fn in fns) > 30


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    case = generate(seed, ALL if seed % 3 else EXACT)
    rolled = reroll(case.fn)
    verify(rolled)
    want, got = (run_reference(f, case.args()) for f in (case.fn, rolled))
    assert all(np.all(same_bits(want[name], got[name])) for name in want)


@pytest.mark.parametrize("seed", range(0, 150, 6))
def test_whole_pipeline(seed: int) -> None:
    fn = make(Template(seed).lines(), serial=True)
    program, temps = optimize_kernel(fn, FULL, Options())
    for f in program.funcs:
        lower_dispatch(f, FULL)
    arrays = [(p.name, p.type) for p in temps if isinstance(p.type, Array)]
    made = {name: np.zeros(t.shape or (1,), t.stored.dtype) for name, t in arrays}
    want, got = run_reference(fn, arguments()), run_reference(program, {**arguments(), **made})
    assert all(np.all(same_bits(want[k], got[k])) for k in want if k in got)


def cells(count: int) -> str:
    """Sums over lists at constant offsets of the iteration: the length of each list is loaded."""
    lines = []
    for k in range(count):
        before = f"%s{k - 1}" if k else "%zero"
        lines += [
            f"    %o{k} = const {3 * k - 4} : i32",
            f"    %j{k} = add %i, %o{k} : i32",
            f"    %e{k} = elem %w, %j{k} : ptr<i32 global>",
            f"    %n{k} = load %e{k} : i32",
            f"    %s{k} = for %c0, %n{k}, {before} : f32 {{",
            f"      ^(%q{k}: i32, %t{k}: f32)",
            f"      %p{k} = elem %x, %q{k} : ptr<f32 global>",
            f"      %v{k} = load %p{k} : f32",
            f"      %u{k} = add %t{k}, %v{k} : f32",
            f"      yield %u{k}",
            "    }",
        ]
    store = f"    %r = elem %y, %i : ptr<f32 global>\n    store %r, %s{count - 1}\n"
    return "    %zero = const 0.0 : f32\n" + "\n".join(lines) + "\n" + store


def test_few_loops_of_unknown_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REROLL_GROUPS", 32)
    rolled = check(make(cells(9)))
    assert sum(op.kind == "for" for op in walk(rolled.body)) == 2


def test_few_loops_of_known_length_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REROLL_GROUPS", 32)
    body = cells(9)
    for k in range(9):
        body = body.replace(f"for %c0, %n{k},", "for %c0, %c5,")
    fn = make(body)
    assert sum(op.kind == "for" for op in walk(check(fn).body)) == 9
