"""Random sequences of calls around recordings: derivatives match those of `sequences.Machine`.

Recordings are tapes, forward mode and products with the Hessian. Sequences contain kernels, writes
from Python, functions without gradients, `kernel.grad` and NaN; tapes repeat with the same arrays.

Errors that refuse a gradient are allowed in fewer than half of a batch's recordings. `VKCHI_FUZZ=n`
runs n programs in place of PROGRAMS; `VKCHI_FUZZ_FIRST=k` begins with that seed.
"""

import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz import sequences
from tests.fuzz.sequences import (
    DATA,
    KNOWN,
    NAMES,
    PLACES,
    PLAIN,
    ROWS,
    VECTORS,
    Act,
    Machine,
    N,
    Num,
    Place,
    draw_acts,
    vary,
)
from vkchi.errors import KernelRaceWarning
from vkchi.runtime import current_runtime

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "48"))
FIRST = int(os.environ.get("VKCHI_FUZZ_FIRST", "0"))
BATCH = 24
MODES = ("tape",) * 7 + ("alone", "race") + ("forward",) + ("hvp",) * 2
REFUSED = (ti.ad.GradientError, ti.TaichiRuntimeError, ti.TaichiCompilationError)
LONG, ITERATIONS = 24, 64  # elements and iterations of the program with a race
ARRAY, FIELD = ti.types.ndarray(), ti.template()
Values = dict[str, Sequence[float]]


class World:
    """Arrays of one float type and kernels on them: fields, which have duals, or ndarrays."""

    def __init__(self, t: Any, *, is_field: bool = False) -> None:
        self.dtype, self.is_field = t.dtype, is_field
        self.t, self.plain_type = t, FIELD if is_field else ARRAY
        self.arrays = {name: self.make(N) for name in NAMES}
        self.arrays["loss"] = self.make(())
        self.arrays[VECTORS] = self.make(N, ti.types.vector(2, t))
        self.arrays[PLAIN] = self.make(N, has_gradient=False)
        self.data = self.make(N, has_gradient=False)
        self.data.from_numpy(np.array(DATA, self.dtype))
        self.rows = self.make(1, ti.types.matrix(2, 2, t), has_gradient=False)
        self.rows.from_numpy(np.array([ROWS], self.dtype))
        self.known = ti.field(ti.i32, N) if is_field else ti.ndarray(ti.i32, N)
        self.known.from_numpy(np.array(KNOWN, np.int32))
        self.kernels: dict[str, Any] = {}
        self.make_kernels(self.plain_type)
        self.make_others(self.plain_type)
        if not is_field:
            self.long, self.sum = self.make(LONG), self.make(())
            self.make_race()

    def make(self, shape: Any, t: Any = None, *, has_gradient: bool = True) -> Any:
        t = t or self.t
        if not self.is_field:
            return ti.ndarray(t, shape, needs_grad=has_gradient)
        if t is self.t:
            return ti.field(t, shape, needs_grad=has_gradient, needs_dual=has_gradient)
        return t.field(shape, needs_grad=has_gradient, needs_dual=has_gradient)

    def make_kernels(self, A: Any) -> None:
        @ti.kernel
        def mul(p: A, q: A):
            for i in p:
                p[i] = q[i] * q[(i + 1) % N]

        @ti.kernel
        def sine(p: A, q: A):
            for i in p:
                p[i] += ti.sin(q[i])

        @ti.kernel
        def scale(p: A, s: float):
            for i in p:
                p[i] *= s

        @ti.kernel
        def affine(p: A, q: A, s: float):
            for i in p:
                p[i] = q[i] * s + 0.1

        @ti.kernel
        def reset(p: A, s: float):
            for i in p:
                p[i] = s

        @ti.kernel
        def point(p: A, q: A, i: ti.i32, j: ti.i32):
            p[i] += q[j] * q[j]

        @ti.kernel
        def place(p: A, i: ti.i32, s: float):
            p[i] = s

        @ti.kernel
        def take(p: A, g: A):
            for i in p:
                p[i] = g[i]

        for made in (mul, sine, scale, affine, reset, point, place, take):
            self.kernels[made.__name__] = made

    def make_others(self, A: Any) -> None:
        constant = A if self.is_field else ti.types.ndarray(needs_grad=False)

        @ti.kernel
        def total(q: A, loss: A):
            for i in q:
                loss[None] += q[i] * q[i] * (i + 1)

        @ti.kernel
        def weigh(h: constant, w: A, loss: A):
            for i in w:
                loss[None] += h[i] * w[i]

        @ti.kernel
        def metric(q: A, tot: A, data: A):
            for i in q:
                tot[0] += q[i] * data[i]

        @ti.kernel
        def pick(p: A, q: A, data: A, known: A):
            for i in p:
                p[i] = ti.select(known[i] != 0, q[i] * data[i], 0.25)

        @ti.kernel
        def rows(p: A, v: A, matrix: A):
            for i in p:
                found = matrix[0] @ v[i]
                p[i] += found[1]

        @ti.kernel
        def component(p: A, q: A, v: A, known: A):
            for i in p:
                w = v[i]
                for _ in range(known[0]):
                    w.y = q[1]
                p[i] += w.x * 2 + ti.sqrt(w.y)

        for made in (total, weigh, metric, pick, rows, component):
            self.kernels[made.__name__] = made

    def make_race(self) -> None:
        @ti.kernel
        def flood(z: ti.types.ndarray(), s: ti.types.ndarray(), k: int, at: int, n: int):
            for i in range(n):
                s[None] += z[at] * 0.125
                z[k + i // 8] = -0.25

        self.kernels["flood"] = flood

    def find(self, name: Any) -> Any:
        """The array or gradient of that name; any other argument itself."""
        if not isinstance(name, str):
            return name
        of = name.removesuffix(".grad")
        return self.arrays[of] if of == name else self.arrays[of].grad

    def args(self, name: str, given: Sequence[Any]) -> list[Any]:
        """The arguments of a kernel, with the constant arrays that it also takes."""
        more = {
            "metric": [self.data], "pick": [self.data, self.known], "rows": [self.rows],
            "component": [self.known],
        }  # fmt: skip
        return [*map(self.find, given), *more.get(name, [])]

    def start(self, values: Values, grads: dict[Place, float] | None = None) -> None:
        """Set the arrays and, if given, their gradients."""
        for name, given in values.items():
            array = self.arrays[name]
            shape = (N, 2) if name == VECTORS else (N,)
            array.from_numpy(np.array(given, self.dtype).reshape(shape))
            if grads is not None and name != PLAIN:
                before = [grads[name, i] for i in range(len(given))]
                array.grad.from_numpy(np.array(before, self.dtype).reshape(shape))

    def run(self, acts: Sequence[Act]) -> None:
        for act in acts:
            getattr(self, f"do_{act.kind}")(*act.with_)

    def do_call(self, name: str, *given: Any) -> None:
        self.kernels[name](*self.args(name, given))

    def do_kgrad(self, name: str, *given: Any) -> None:
        self.kernels[name].grad(*self.args(name, given))

    def do_skip(self, *acts: Act) -> None:
        ti.ad.no_grad(lambda: self.run(acts))()

    def do_copy(self, p: str, q: str) -> None:
        self.arrays[p].copy_from(self.arrays[q])

    def do_set(self, name: str, i: int, value: float) -> None:
        self.arrays[name][None if name == "loss" else i] = value

    def do_from(self, name: str, values: Sequence[float]) -> None:
        self.arrays[name].from_numpy(np.array(values, self.dtype))

    def do_fill(self, name: str, value: float) -> None:
        self.arrays[name].fill(value)

    def do_add(self, name: str, i: int, value: float) -> None:
        self.arrays[name][None if name == "loss" else i] += value

    def do_double(self, name: str, i: int) -> None:
        self.arrays[name][i] *= 2

    def do_move(self, p: str, q: str) -> None:
        self.arrays[p].from_numpy(self.arrays[q].to_numpy() * 0.5)

    def do_look(self, name: str) -> None:
        self.arrays[name].to_numpy()

    def do_gfill(self, name: str, value: float) -> None:
        self.arrays[name].grad.fill(value)

    def do_gset(self, name: str, i: int, value: float) -> None:
        self.arrays[name].grad[i] = value

    def gradients(self) -> np.ndarray:
        """The gradients by all inputs, in the order of PLACES."""
        return np.concatenate([self.arrays[n].grad.to_numpy().ravel() for n in (*NAMES, VECTORS)])


class Worlds(NamedTuple):
    """`usual`: for most programs; `short`: in f32, for some tapes; `fields`: for forward mode."""

    usual: World
    short: World
    fields: World


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """Worlds in f64 where the device has it, and one in f32."""
    yield make_worlds()
    ti.reset()  # others want f32


def make_worlds() -> Worlds:
    ti.init(random_seed=7)
    caps = current_runtime().device.caps
    t = ti.f64 if caps.has_type("f64") and caps.can_store("f64") else ti.f32
    ti.init(random_seed=7, default_fp=t)
    return Worlds(World(t), World(ti.f32), World(t, is_field=True))


class Program:
    """A random program; counts its recordings in `count` and the refused ones in `refused`."""

    def __init__(self, seed: int, worlds: Worlds) -> None:
        self.r = r = random.Random(seed)
        self.mode = r.choice(MODES)
        self.world = worlds.fields if self.mode == "forward" else worlds.usual
        if self.mode == "tape" and r.random() < 0.3:
            self.world = worlds.short
        self.values: Values = {n: [self.number() for _ in range(N)] for n in (*NAMES, PLAIN)}
        self.values[VECTORS] = [self.number() for _ in range(2 * N)]
        self.seed, self.refused, self.count = seed, 0, 0

    def number(self) -> float:
        return 0.0 if self.r.random() < 0.08 else round(self.r.uniform(0.3, 1.2), 3)

    def run(self) -> None:
        with warnings.catch_warnings():
            for kind in (ti.ad.GradientWarning, KernelRaceWarning):
                warnings.simplefilter("ignore", kind)
            getattr(self, f"run_{self.mode}")()

    def attempt(self, act: Callable[[], Any]) -> Any:
        """Result of the call; None, counted, if it raises one of REFUSED."""
        self.count += 1
        try:
            return act()
        except REFUSED:
            self.refused += 1
            return None

    def compare(
        self, found: Any, want: Any, acts: Any, what: str, *, loss: Num | None = None,
        exact: float = 1e-7,
    ) -> None:  # fmt: skip
        """Assert that derivatives agree where `want` is finite.

        Where the loss is steep, derivatives that are not finite are accepted too, except by the
        second components of vectors if no act uses them.
        """
        tolerance = exact if self.world.dtype == np.float64 else 2e-2
        known = np.isfinite(want)
        if loss is not None and loss.is_steep:
            are_used = "'rows'" in str(acts)
            must = [n == VECTORS and k % 2 == 1 and not are_used for n, k in PLACES]
            known &= np.isfinite(found) | np.array(must[: len(found)])
        scale = max(1.0, float(np.abs(np.asarray(want)[known]).max(initial=0.0)))
        if not np.allclose(found[known], want[known], tolerance, tolerance * scale):
            lines = "\n".join(f"  {act}" for act in acts)
            raise AssertionError(
                f"seed {self.seed}, {self.mode}, {what}: {found}, not {want}\n{lines}"
            )

    def sequences(self) -> list[list[Act]]:
        """The acts of one to five recordings with the same arrays, equal or varied."""
        acts = draw_acts(self.r, self.mode)
        found = [acts for _ in range(self.r.choice([1, 2, 3]))]
        if self.r.random() < 0.4:
            found += [vary(self.r, self.mode, acts)] * self.r.choice([1, 2])
        return found

    def must_be_refused(self, machine: Machine) -> bool:
        return machine.mem["loss", 0].lost or machine.is_last_by_python

    def expect_refusal(self, found: Any, machine: Machine, acts: Any) -> None:
        """Assert that the recording was refused if the rules promise an error."""
        if found is not None and self.must_be_refused(machine):
            lines = "\n".join(f"  {act}" for act in acts)
            raise AssertionError(f"seed {self.seed}, {self.mode}: not refused\n{lines}")

    def run_tape(self) -> None:
        clears = self.r.random() < 0.7
        memory = 2000 if self.r.random() < 0.15 else None
        grads = {k: self.number() for k in PLACES}
        is_late = random.Random(self.seed).random() < 0.5
        for k, acts in enumerate(self.sequences()):
            machine = Machine(self.values, "tape", None if clears else grads)
            machine.run(acts)

            def run(acts: list[Act] = acts) -> Any:
                self.world.start(self.values, grads)
                loss = self.world.arrays["loss"]
                if is_late:
                    return self.run_backward(acts, clears, memory)
                with ti.ad.Tape(loss, clear_gradients=clears, memory=memory):
                    self.world.run(acts)
                return self.world.gradients()

            found = self.attempt(run)
            self.expect_refusal(found, machine, acts)
            if found is not None:
                left = np.array([machine.grads[place].value for place in PLACES])
                want = left + machine.mem["loss", 0].slope
                self.compare(found, want, acts, f"tape {k}", loss=machine.mem["loss", 0])

    def run_backward(self, acts: list[Act], clears: bool, memory: int | None) -> Any:
        """The gradients from a tape without loss, after its arrays have changed."""
        arrays = self.world.arrays
        arrays["loss"].fill(0)
        with ti.ad.Tape(clear_gradients=clears, memory=memory) as tape:
            self.world.run(acts)
        for k, name in enumerate((*NAMES, PLAIN, "loss")):
            if k % 2 or name == "loss":
                arrays[name].fill(0.25)
            else:
                self.world.kernels["scale"](arrays[name], 1.5)
        tape.backward({arrays["loss"]: 1.0})
        return self.world.gradients()

    def run_forward(self) -> None:
        name, seeds = self.r.choice(NAMES[:3]), [1.0, -0.5, 0.25]
        along = np.array([seeds[i] if n == name else 0.0 for n, i in PLACES])
        arrays = self.world.arrays
        for k, acts in enumerate(self.sequences()):
            machine = Machine(self.values, "forward")
            machine.run(acts)
            machine.is_last_by_python = False  # of a constant the derivative is 0

            def run(acts: list[Act] = acts) -> Any:
                self.world.start(self.values)
                arrays["loss"].fill(0)
                with ti.ad.FwdMode(arrays["loss"], arrays[name], seeds):
                    self.world.run(acts)
                return np.array([arrays["loss"].dual[None]])

            found = self.attempt(run)
            loss = machine.mem["loss", 0]
            if loss.lost and not (loss.slope * along).any():
                loss.lost = False  # the unknown derivatives may be by other inputs
            self.expect_refusal(found, machine, acts)
            if found is not None:
                want = np.array([float(np.dot(loss.slope, along))])
                self.compare(found, want, acts, f"forward {k}", loss=loss)

    def run_hvp(self) -> None:
        name, along = self.r.choice(NAMES[:3]), [1.0, -0.5, 0.25]
        arrays = self.world.arrays
        own = [k for k, place in enumerate(PLACES) if place[0] == name]
        for k, acts in enumerate(self.sequences()):
            machine = Machine(self.values, "hvp")
            machine.run(acts)

            def run(acts: list[Act] = acts) -> Any:
                self.world.start(self.values)
                run = lambda: self.world.run(acts)  # noqa: E731
                product = ti.ad.hvp(run, arrays["loss"], arrays[name], along)
                return [product, self.world.gradients()]

            found = self.attempt(run)
            self.expect_refusal(found, machine, acts)
            if found is not None:
                loss = machine.mem["loss", 0]
                self.compare(found[1], loss.slope, acts, f"gradient of hvp {k}", loss=loss)
                ends = [
                    self.slopes_near(acts, name, along, h, machine.constants)[own]
                    for h in (1e-5, -1e-5)
                ]
                with np.errstate(invalid="ignore"):
                    want = (ends[0] - ends[1]) / 2e-5
                if self.world.dtype == np.float64 and not loss.is_steep:
                    self.compare(found[0], want, acts, f"hvp {k}", exact=1e-5)

    def slopes_near(
        self, acts: list[Act], name: str, along: list[float], h: float, constants: list[float]
    ) -> Any:
        """The machine's gradient at inputs moved by `h` along a direction."""
        moved = {(name, i): h * d for i, d in enumerate(along)}
        machine = Machine(self.values, "hvp", None, moved, constants)
        machine.run(acts)
        return machine.mem["loss", 0].slope

    def run_alone(self) -> None:
        """Check `kernel.grad` of single calls, outside of tapes."""
        drawing = sequences.Drawing(self.r, "tape")
        for _ in range(4):
            act = drawing.call()
            if PLAIN in act.with_ or act.with_[0] == "place":
                continue
            grads = {k: self.number() for k in [*PLACES, ("loss", 0)]}
            machine = Machine(self.values, "tape", grads)
            machine.run([Act("kgrad", act.with_)])

            def run(act: Act = act, grads: dict[Place, float] = grads) -> Any:
                self.world.start(self.values, grads)
                self.world.arrays["loss"].grad.fill(grads["loss", 0])
                self.world.run([act, Act("kgrad", act.with_)])
                return self.world.gradients()

            found = self.attempt(run)
            if found is not None:
                want = np.array([machine.grads[place].value for place in PLACES])
                self.compare(found, want, [act], "alone")

    def run_race(self) -> None:
        """Check a loop that stores constants, perhaps over elements that other iterations read."""
        r, world = self.r, self.world
        for is_taped in (True, False):
            k, n = r.randrange(LONG - ITERATIONS // 8), r.randrange(1, ITERATIONS + 1)
            at = r.randrange(LONG)
            meets = k <= at <= k + (n - 1) // 8
            want = np.zeros(LONG)
            want[at] += n * 0.125
            acts = [Act("call", ("flood", k, at, n))]
            args = (world.long, world.sum, k, at, n)

            def run(args: Any = args, is_taped: bool = is_taped) -> Any:
                world.long.fill(1)
                flood = world.kernels["flood"]
                if is_taped:
                    with ti.ad.Tape(world.sum):
                        flood(*args)
                else:
                    flood(*args)
                    world.long.grad.fill(0)
                    world.sum.grad.fill(1)
                    flood.grad(*args)
                return world.long.grad.to_numpy()

            found = self.attempt(run)
            if found is not None and meets and n > 1:
                raise AssertionError(f"seed {self.seed}: a race that is not refused: {acts}")
            if found is not None:
                self.compare(found, want, acts, "race")


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, BATCH))
def test_random_sequences_match_reference_machine(first: int, worlds: Worlds) -> None:
    programs = [Program(first + k, worlds) for k in range(min(BATCH, FIRST + PROGRAMS - first))]
    for program in programs:
        program.run()
    refused, count = (sum(getattr(p, k) for p in programs) for k in ("refused", "count"))
    print(f"seeds from {first}: {refused} of {count} refused")  # noqa: T201
    assert refused * 2 < count or len(programs) < BATCH
