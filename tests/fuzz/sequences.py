"""Random sequences of calls around a recording, and a reference for their derivatives.

    acts = draw_acts(r, "tape")       # [Act("call", ("mul", "a", "b")), ...]
    machine = Machine(start); machine.run(acts)
    machine.mem["loss", 0].slope      # the gradient by the inputs

The machine shares no code with the compiler. A number carries its derivatives by all inputs, and
the rules of docs/autodiff.md are applied element by element. A number is `lost` where the rules
promise that vkchi refuses the gradient.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

N = 3
NAMES = ("a", "b", "c", "tot")  # of N numbers each, with gradients
VECTORS = "v"  # of N vectors of two components, with a gradient
PLAIN = "plain"  # without
DATA = (0.5, math.nan, 0.75)
KNOWN = (1, 0, 1)
ROWS = ((math.nan, 2.0), (0.5, -0.75))  # of a matrix; the first row is NaN in its first column
PLACES = [(n, i) for n in NAMES for i in range(N)] + [(VECTORS, k) for k in range(2 * N)]
COUNT = len(PLACES)
Place = tuple[str, int]


class Act(NamedTuple):
    kind: str
    with_: tuple[Any, ...]


class Num:
    """A number and its derivatives by all inputs; `lost` if those are unknown.

    `is_steep`: an infinite derivative or NaN occurs on a path to it. There reverse mode may find
    NaN where the derivative is 0.
    """

    def __init__(
        self, value: float, slope: Any = None, *, lost: bool = False, is_steep: bool = False
    ) -> None:
        self.value, self.lost = float(value), lost
        self.is_steep = is_steep or not math.isfinite(self.value)
        self.slope = np.zeros(COUNT) if slope is None else slope

    def __add__(self, other: Any) -> Num:
        o = other if isinstance(other, Num) else Num(other, np.zeros_like(self.slope))
        return self.joined(o, self.value + o.value, self.slope + o.slope)

    def __mul__(self, other: Any) -> Num:
        o = other if isinstance(other, Num) else Num(other, np.zeros_like(self.slope))
        slope = times(self.slope, o.value) + times(o.slope, self.value)
        return self.joined(o, self.value * o.value, slope)

    def joined(self, other: Num, value: float, slope: Any) -> Num:
        """A number made of both, which inherits `lost` and `is_steep` from either."""
        lost, is_steep = self.lost or other.lost, self.is_steep or other.is_steep
        return Num(value, slope, lost=lost, is_steep=is_steep)

    def map(self, value: float, factor: float) -> Num:
        """A function of this number: its value, and its derivative `factor` at this point."""
        is_steep = self.is_steep or not math.isfinite(factor)
        return Num(value, times(self.slope, factor), lost=self.lost, is_steep=is_steep)

    def sin(self) -> Num:
        finite = math.isfinite(self.value)
        value, slope = (math.sin(self.value), math.cos(self.value)) if finite else (math.nan,) * 2
        return self.map(value, slope)

    def sqrt(self) -> Num:
        if not self.value > 0:
            return self.map(0.0 if self.value == 0 else math.nan, math.nan)
        return self.map(math.sqrt(self.value), 0.5 / math.sqrt(self.value))


def times(slope: Any, factor: float) -> Any:
    """`slope * factor`, with 0 where `slope` is 0, also for an infinite factor or NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(slope == 0, 0.0, slope * factor)


# --- kernels -------------------------------------------------------------------------------------


class View:
    """An array as a kernel sees it: reads and writes are noted in the machine.

    Writes do not change the machine's memory yet.
    """

    def __init__(self, machine: Machine, name: str, *, is_constant: bool = False) -> None:
        self.machine, self.name, self.is_constant = machine, name, is_constant

    def __getitem__(self, i: int) -> Num:
        place = self.name, i
        found = self.machine.memory(self.name)[place]
        if self.is_constant:
            return Num(self.machine.constant(found.value), np.zeros_like(found.slope))
        self.machine.reads.add(place)
        return found

    def __setitem__(self, i: int, value: Any) -> None:
        made = value if isinstance(value, Num) else Num(value, self.machine.zeros)
        self.machine.writes[self.name, i] = made


def mul(p: View, q: View) -> None:
    for i in range(N):
        p[i] = q[i] * q[(i + 1) % N]


def sine(p: View, q: View) -> None:
    for i in range(N):
        p[i] = p[i] + q[i].sin()


def scale(p: View, s: float) -> None:
    for i in range(N):
        p[i] = p[i] * s


def affine(p: View, q: View, s: float) -> None:
    for i in range(N):
        p[i] = q[i] * s + 0.1


def reset(p: View, s: float) -> None:
    for i in range(N):
        p[i] = s


def point(p: View, q: View, i: int, j: int) -> None:
    p[i] = p[i] + q[j] * q[j]


def place(p: View, i: int, s: float) -> None:
    p[i] = s


def total(q: View, loss: View) -> None:
    added = Num(0.0, np.zeros_like(loss[0].slope))
    for i in range(N):
        added = added + q[i] * q[i] * (i + 1.0)
    loss[0] = loss[0] + added


def weigh(h: View, w: View, loss: View) -> None:
    added = Num(0.0, np.zeros_like(loss[0].slope))
    for i in range(N):
        added = added + h[i] * w[i]
    loss[0] = loss[0] + added


def metric(q: View, tot: View) -> None:
    added = Num(0.0, np.zeros_like(tot[0].slope))
    for i in range(N):
        added = added + q[i] * DATA[i]
    tot[0] = tot[0] + added


def pick(p: View, q: View) -> None:
    for i in range(N):
        product = q[i] * DATA[i]  # it is computed, chosen or not
        p[i] = product if KNOWN[i] else 0.25


def rows(p: View, v: View) -> None:
    for i in range(N):
        p[i] = p[i] + v[2 * i] * ROWS[1][0] + v[2 * i + 1] * ROWS[1][1]


def component(p: View, q: View, v: View) -> None:
    for i in range(N):
        p[i] = p[i] + v[2 * i] * 2.0 + q[1].sqrt()


def take(p: View, g: View) -> None:
    for i in range(N):
        p[i] = g[i]


def copy(p: View, q: View) -> None:
    for i in range(N):
        p[i] = q[i]


class Kernel(NamedTuple):
    """A kernel as a function of Views.

    `bends` is the position of the argument in which it is not linear. `writes` is "add", "constant"
    (it stores constants) or "other".
    """

    run: Callable[..., None]
    bends: int | None = None
    writes: str = "other"


KERNELS = {
    "mul": Kernel(mul, 1), "sine": Kernel(sine, 1, "add"), "scale": Kernel(scale),
    "affine": Kernel(affine), "reset": Kernel(reset, None, "constant"),
    "point": Kernel(point, 1, "add"), "place": Kernel(place, None, "constant"),
    "total": Kernel(total, 0, "add"), "weigh": Kernel(weigh, None, "add"),
    "metric": Kernel(metric, None, "add"), "pick": Kernel(pick),
    "rows": Kernel(rows, None, "add"), "component": Kernel(component, 1, "add"),
    "take": Kernel(take), "copy": Kernel(copy),
}  # fmt: skip


# --- the machine ---------------------------------------------------------------------------------


class Machine:
    """Memory and gradients, which acts change by the documented rules. `mode`: tape, forward or
    hvp.

    `used` holds the places that recorded kernels have read or written, except for constants; the
    places of those are in `stored`. `grads` are the gradients inside the recording. `moved` is
    added to inputs; the `constants` of another machine then replace values that count as constant.
    """

    def __init__(
        self, values: dict[str, Sequence[float]], mode: str = "tape",
        grads: dict[Place, float] | None = None, moved: dict[Place, float] | None = None,
        constants: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        self.mode, self.zeros = mode, np.zeros(COUNT)
        self.moved = moved or {}
        self.constants: list[float] = []
        self.given = None if constants is None else iter(constants)
        self.mem: dict[Place, Num] = {("loss", 0): Num(0.0)}
        for name, given in values.items():
            for i, value in enumerate(given):
                self.mem[name, i] = self.input((name, i), value)
        before = grads or {}
        self.grads = {k: Num(before.get(k, 0.0)) for k in [*PLACES, ("loss", 0)]}
        self.used: set[Place] = set()
        self.stored: set[Place] = set()
        self.is_skipping = self.is_last_by_python = False
        self.reads: set[Place] = set()
        self.writes: dict[Place, Num] = {}

    def input(self, place: Place, value: float) -> Num:
        return Num(value + self.moved.get(place, 0.0), self.unit(place))

    def constant(self, value: float) -> float:
        """Note a value that counts as constant; it, or the given value in its stead."""
        self.constants.append(value)
        return value if self.given is None else next(self.given)

    def unit(self, place: Place) -> Any:
        """The derivatives of an input by all inputs."""
        made = np.zeros(COUNT)
        if place in PLACES:
            made[PLACES.index(place)] = 1.0
        return made

    def memory(self, name: str) -> dict[Place, Num]:
        """The numbers of an array or, for "a.grad", of a gradient by place."""
        if not name.endswith(".grad"):
            return self.mem
        of = name.removesuffix(".grad")
        return {(name, i): x for (n, i), x in self.grads.items() if n == of}

    def put(self, place: Place, value: Num) -> None:
        name, i = place
        if name.endswith(".grad"):
            self.grads[name.removesuffix(".grad"), i] = value
        else:
            self.mem[place] = value

    def run(self, acts: Sequence[Act]) -> None:
        for act in acts:
            getattr(self, f"do_{act.kind}")(*act.with_)

    def do_skip(self, *acts: Act) -> None:
        """A function under `ti.ad.no_grad`; forward mode differentiates its body all the same."""
        self.is_skipping = self.mode != "forward"
        self.run(acts)
        self.is_skipping = False

    # --- kernels

    def trial(self, name: str, args: Sequence[Any]) -> tuple[set[Place], dict[Place, Num]]:
        """The places that a kernel reads, and the numbers that it writes, without writing them."""
        self.reads, self.writes = set(), {}
        is_weigh = name == "weigh" and self.mode != "forward"
        views = [View(self, arg, is_constant=is_weigh and k == 0) if isinstance(arg, str) else arg
                 for k, arg in enumerate(args)]  # fmt: skip
        KERNELS[name].run(*views)
        return self.reads, self.writes

    def do_call(self, name: str, *args: Any) -> None:
        kernel = KERNELS[name]
        reads, writes = self.trial(name, args)
        if not self.is_skipping:
            self.used |= reads
            for place, value in writes.items():
                (self.stored if kernel.writes == "constant" else self.used).add(place)
                self.put(place, value)
        else:
            changed = {n for n, _ in writes}
            is_known = any(n in changed for n, _ in self.used)
            for place, value in writes.items():
                self.put(place, self.undifferentiated(kernel.writes, place, value, is_known))
        if any(n == "loss" for n, _ in writes):
            self.is_last_by_python = False

    def undifferentiated(self, kind: str, place: Place, value: Num, is_known: bool) -> Num:
        """The number at `place` after a kernel under `no_grad` has written `value` there."""
        old = self.memory(place[0])[place]
        if place[0].endswith(".grad"):
            return Num(value.value)
        if kind == "add" or (kind == "constant" and not is_known and self.is_fresh(place)):
            return Num(value.value, old.slope, lost=old.lost)
        if kind == "constant":
            self.stored.add(place)
            return Num(value.value)
        if self.is_fresh(place):
            return Num(value.value, old.slope, lost=old.lost or bool(old.slope.any() and
                       place[0] == PLAIN))  # fmt: skip
        return Num(value.value, old.slope, lost=True)

    def is_fresh(self, place: Place) -> bool:
        return place not in self.used and place not in self.stored

    def do_copy(self, p: str, q: str) -> None:
        """p.copy_from(q)"""
        self.do_call("copy", p, q)

    # --- Python

    def do_set(self, name: str, i: int, value: float) -> None:
        is_input = name in NAMES and self.is_fresh((name, i))
        self.mem[name, i] = self.input((name, i), value) if is_input else Num(value)
        self.is_last_by_python |= name == "loss"

    def do_from(self, name: str, values: Sequence[float]) -> None:
        is_used = any(n == name for n, _ in self.used)
        for i, value in enumerate(values):
            self.do_set(name, i, value)
            if is_used:
                self.mem[name, i] = Num(value)
                self.stored.add((name, i))

    def do_fill(self, name: str, value: float) -> None:
        self.do_from(name, [value] * (1 if name == "loss" else N))

    def do_add(self, name: str, i: int, value: float) -> None:
        self.mem[name, i] = self.mem[name, i] + value

    def do_double(self, name: str, i: int) -> None:
        """x[i] = x[i] * 2 in Python."""
        old = self.mem[name, i]
        lost = old.lost or not self.is_fresh((name, i))
        self.mem[name, i] = Num(old.value * 2, old.slope, lost=lost)
        self.is_last_by_python |= name == "loss"

    def do_move(self, p: str, q: str) -> None:
        """p.from_numpy(q.to_numpy() * 0.5)"""
        self.do_from(p, [self.constant(self.mem[q, i].value) * 0.5 for i in range(N)])

    def do_look(self, name: str) -> None:
        """x.to_numpy()"""

    # --- gradients

    def do_gfill(self, name: str, value: float) -> None:
        for i in range(1 if name == "loss" else N):
            self.do_gset(name, i, value)

    def do_gset(self, name: str, i: int, value: float) -> None:
        self.grads[name, i] = Num(value)

    def do_kgrad(self, name: str, *args: Any) -> None:
        """`kernel.grad(...)`: update `grads` by the kernel's derivatives at the present memory."""
        slopes, reads = self.jacobian(name, args)
        bends = KERNELS[name].bends
        bent = [self.mem[k] for k in reads if bends is not None and k[0] == args[bends]]
        is_lost = any(x.lost or x.slope.any() for x in bent) and not self.is_skipping
        before = dict(self.grads)
        for k in reads | slopes.keys():
            if k in self.grads:
                own = 0.0 if k in slopes else before[k].value
                more = [times(before[w].value, row.get(k, 0.0)) for w, row in slopes.items()]
                known = [before[w] for w in slopes if row_of(slopes, w, k)]
                is_bad = any(x.lost for x in known) or before[k].lost
                is_bad |= is_lost and any(before[w].value != 0 for w in slopes)
                self.grads[k] = Num(own + float(sum(more)), lost=bool(is_bad))

    def jacobian(
        self, name: str, args: Sequence[Any]
    ) -> tuple[dict[Place, dict[Place, float]], set[Place]]:
        """The derivatives of a kernel's writes by its arrays' elements, and the places that it
        reads."""
        names = [arg for arg in args if isinstance(arg, str)]
        places = [k for k in self.mem if k[0] in names]
        local = Machine({}, self.mode)
        local.zeros = np.zeros(len(places))
        local.mem = {k: Num(self.mem[k].value, np.eye(len(places))[j])
                     for j, k in enumerate(places)}  # fmt: skip
        reads, writes = local.trial(name, args)
        found = {w: {k: float(x.slope[j]) for j, k in enumerate(places) if x.slope[j] != 0}
                 for w, x in writes.items()}  # fmt: skip
        return found, reads


def row_of(slopes: dict[Place, dict[Place, float]], w: Place, k: Place) -> bool:
    """True if the written element `w` depends on the element `k`."""
    return k in slopes[w]


# --- drawing -------------------------------------------------------------------------------------


class Drawing:
    """Random acts for a mode."""

    def __init__(self, r: random.Random, mode: str) -> None:
        self.r, self.mode = r, mode

    def number(self) -> float:
        return self.r.choice([0.3, 0.6, 0.9, -0.4])

    def pair(self) -> tuple[str, str]:
        p, q = self.r.sample(NAMES[:3], 2)
        if self.r.random() < 0.04:
            p = PLAIN
        elif self.r.random() < 0.04:
            q = PLAIN
        return p, q

    def call(self) -> Act:
        r, (p, q) = self.r, self.pair()
        i, j = r.randrange(N), r.randrange(N)
        calls: list[tuple[float, tuple[Any, ...]]] = [
            (3, ("mul", p, q)), (3, ("sine", p, q)), (2, ("scale", p, self.number())),
            (2, ("affine", p, q, self.number())), (1, ("reset", p, self.number())),
            (3, ("point", p, q, i, j)), (1, ("place", p, i, self.number())),
            (4, ("total", q, "loss")), (2, ("metric", q, "tot")), (1, ("pick", p, q)),
            (2, ("rows", p, VECTORS)), (2, ("component", p, q, VECTORS)),
            (0.3, ("total", "tot", "loss")),
        ]  # fmt: skip
        if self.mode != "forward":
            calls.append((4, ("weigh", *r.sample(NAMES[:3], 2), "loss")))
        return Act("call", r.choices([c for _, c in calls], [w for w, _ in calls])[0])

    def python(self) -> Act:
        """A random access from Python: a write, an update or a read."""
        r, name, i = self.r, self.r.choice(NAMES[:3]), self.r.randrange(N)
        numbers = tuple(self.number() for _ in range(N))
        acts = [
            (3, Act("fill", (name, self.number()))), (3, Act("from", (name, numbers))),
            (4, Act("set", (name, i, self.number()))), (2, Act("add", (name, i, self.number()))),
            (0.3, Act("double", (name, i))), (0.5, Act("look", (name,))),
            (0.5, Act("move", tuple(r.sample(NAMES[:3], 2)))), (1, Act("add", ("loss", 0, 1.0))),
            (0.5, Act("set", ("loss", 0, 0.5))),
        ]  # fmt: skip
        return r.choices([a for _, a in acts], [w for w, _ in acts])[0]

    def gradient(self) -> list[Act]:
        """Acts that set gradients inside the recording, or set one and call `kernel.grad`."""
        r, name = self.r, self.r.choice(NAMES[:3])
        if r.random() < 0.5:
            number = self.number()
            acts = [Act("gfill", (name, number)), Act("gset", (name, r.randrange(N), number)),
                    Act("call", ("reset", f"{name}.grad", number))]  # fmt: skip
            return [r.choice(acts[: 2 if self.mode == "hvp" else 3])]
        call = self.call()
        while PLAIN in call.with_ or call.with_[0] in ("pick", "place"):
            call = self.call()
        out = next(x for x in call.with_[1:] if isinstance(x, str))
        out = "loss" if "loss" in call.with_ else "tot" if "tot" in call.with_ else out
        acts = [Act("gfill", (out, self.number())), Act("kgrad", call.with_)]
        if r.random() < 0.35 and self.mode != "hvp":
            p, q = r.sample(NAMES[:3], 2)
            acts.append(Act("call", ("take", p, f"{q}.grad")))
            acts.append(Act("call", ("total", p, "loss")))
        return acts

    def acts(self) -> list[Act]:
        """One act, or a few that belong together."""
        r, x = self.r, self.r.random()
        if x < 0.56:
            return [self.call()]
        if x < 0.82:
            return [self.python()]
        if x < 0.88:
            return [Act("copy", tuple(r.sample(NAMES[:3], 2)))]
        if x < 0.93 and self.mode != "hvp":
            inside = [self.call() if r.random() < 0.6 else self.python()]
            if r.random() < 0.3:
                inside += self.gradient()[:2]
            return [Act("skip", tuple(inside))]
        return self.gradient()


def draw_acts(r: random.Random, mode: str) -> list[Act]:
    """Three to eight random steps, two additions to the loss, and seldom a write of the loss."""
    drawing = Drawing(r, mode)
    acts = [act for _ in range(r.randrange(3, 9)) for act in drawing.acts()]
    acts += [Act("call", ("total", name, "loss")) for name in r.sample(NAMES[:3], 2)]
    if r.random() < 0.04:
        acts.append(Act("set", ("loss", 0, 0.5)))
    return acts


def vary(r: random.Random, mode: str, acts: Sequence[Act]) -> list[Act]:
    """A copy of the acts with other acts inserted at a random place or replacing one."""
    k = r.randrange(len(acts))
    return [*acts[:k], *Drawing(r, mode).acts(), *acts[k + r.randrange(2) :]]
