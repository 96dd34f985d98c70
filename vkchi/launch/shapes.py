"""Code for what launches repeat: the next tier, and extents as constants where code for any
extents asks the launch.

A kernel over arrays that are arguments is compiled for any extents. Launches of the same extents
are counted; once they have worked for about as long as compiling takes, the same Func is built with
these extents as constants, and from then on runs for them: grids have no edges then, bounds are
proved, rows are aligned, divisions multiply. The first MOST_SHAPES extents of a kernel get that,
all others the code for any extents, so nothing is compiled for ever. What one process has made, the
next one finds at its first launch (`cache.shaped`).

Code of the first tier leaves out what a few launches do not repay (`passes.tiers`). Where it says
that there is a next one, that is made in the same way, with extents or, where no array's are asked
for, once for all launches; beyond MOST_SHAPES extents, for any.

Both forms do the same: they take the same numbers from the same places, and work on the same
arrays; what goes from dispatch to dispatch, each keeps for itself. What is refused of the second
form alone (memory for that), or fails there, leaves one form; and there is one where launches tell
or draw something (`Plan.may_have_shapes`), or iterations see workgroups whose size nobody demanded.
Floats that several iterations add to one place may be added in another order, as in any two
launches; floats made of extents may differ in their last bits, as the compiler computes constants.

Owns: which extents are met, when code for them is worth it. Must not know: how it is built.

An exception may end a count or a build anywhere: a form is put in its place by one assignment, and
what was not counted or built is at the next launch.

    executable.shapes = Shapes(executable, Origin(home, "", lambda: fn, build))
    form = executable.shapes.form(bound.flat)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from vkchi import env
from vkchi.compiling import compiling
from vkchi.errors import CompilationError, DeviceError, Unsupported, VkchiError
from vkchi.interrupts.bounded import remember
from vkchi.launch.executable import count_reader
from vkchi.logs import logger
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.target.shader import compile_counts
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.cache.compiled import Home
    from vkchi.ir.core import Func
    from vkchi.launch.executable import Executable, Form

Build = Callable[["Func", Options, Caps], Artifact]
Shape = tuple[int, ...]

MOST_SHAPES = 4  # that an executable has code of their own for
MOST_MET = 64  # that are counted at a time
# Nanoseconds: what compiling for extents takes, Mesa's lavapipe its larger part; what the next tier
# takes, for each of its dispatches, which may be one more than there are, or for each of its ops
# where these are many; what a launch takes, for each number of its arrays, or so many ops.
# Measured on the programs of `benchmarks/shapes.py`, the ops on a stencil of 126 (15 ms), but for
# graphics cards, whose memory gives a number in about that time.
COMPILING, EACH_OF_TIER, OP_OF_TIER = 5e7, 6e6, 1e5
NUMBER_PROCESSOR, NUMBER_CARD = 2.0, 0.02
OPS = 50
FEWEST_NUMBERS = 2048  # to begin and end a launch takes longer than so few
# What bugs raise.
BUGS = (VkchiError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
        RecursionError, TypeError, ValueError)  # fmt: skip
TOLD = (
    "%s(): there is no code for what its launches repeat (%s: %s), and that of the first ones goes "
    "on. This is a bug in vkchi, please report it; VKCHI_SHAPES=0 tries none"
)


class Origin(NamedTuple):
    """What an executable was built of: `read` gives the Func, `build` makes an artifact of such a
    one (None: `compiler.build`), `what` says which one it is among those that are made of the
    kernel whose `home` in the cache this is; None for none."""

    home: Home | None
    what: str
    read: Callable[[], Func]
    build: Build | None


class Met:
    """Extents that launches met: the code that runs for them, and how many launches it takes until
    they get their own, 0 where that is settled."""

    __slots__ = ("form", "key", "left")

    def __init__(self, key: Shape, form: Form, left: int) -> None:
        self.key, self.form, self.left = key, form, left


class Shapes:
    """The extents that an executable has met; `made` are those that have code of their own."""

    def __init__(self, executable: Executable, origin: Origin) -> None:
        self._runtime, self._origin = executable.runtime, origin
        self._plain, self._make_form = executable.form, executable.make_form
        self._has_next = executable.artifact.has_next
        arrays, types = executable.dynamic_arrays, executable.artifact.arrays
        if not executable.asks_extents:
            arrays = {}
        self._arrays = [(name, len(places), types[name].scalars_per_element)
                        for name, places in arrays.items()]  # fmt: skip
        self._places = [place for places in arrays.values() for place in places]
        self._work, self._numbers = executable.artifact.work, executable.places
        self.made: dict[Shape, Met] = {}
        self._counted: dict[Shape, Met] = {}
        self._looks = MOST_MET

    def form(self, flat: list[Any], launches: int = 1) -> Form:
        """What runs in a launch of these numbers, which counts for so many of its extents."""
        met = self.meet(flat)
        if met.left:
            self.count(met, launches)
        return met.form

    def meet(self, flat: list[Any]) -> Met:
        """What is known of the extents of a launch with these numbers."""
        key = tuple([flat[k] for k in self._places])
        return self.made.get(key) or self._counted.get(key) or self._begin(key, flat)

    def count(self, met: Met, launches: int) -> None:
        """So many launches more of these extents: they get code of their own where that is worth
        it now."""
        if met.left > launches:
            met.left -= launches
            return
        other = self.made.get(met.key)  # `met` was forgotten, and met again
        if other is None and len(self.made) < MOST_SHAPES:
            other = self.made[met.key] = Met(met.key, self._make(met.key), 0)
            self._counted.pop(met.key, None)
        met.form = other.form if other is not None else self._for_any
        met.left = 0

    def _begin(self, key: Shape, flat: list[Any]) -> Met:
        """Extents that were not met yet, or long ago."""
        if len(self.made) >= MOST_SHAPES:
            return Met(key, self._for_any, 0)
        if not (self._has_next or self.shapes_of(key)):
            return Met(key, self._plain, 0)
        found = self._look_for(key)
        if found is not None:
            return self.made.setdefault(key, Met(key, found, 0))
        met = Met(key, self._plain, self._launches(key, flat))
        remember(self._counted, key, met, MOST_MET)
        return met

    @cached_property
    def _for_any(self) -> Form:
        """The code for any extents, of the last tier: many extents were worth theirs."""
        if not self._has_next:
            return self._plain
        return self._or_plain(lambda: self._form_of(self._compile({})))

    def shapes_of(self, key: Shape) -> dict[str, Shape]:
        """The shapes of the arrays, by name; not of those without elements, as what is not given
        is: these have none that code could be for."""
        found: dict[str, Shape] = {}
        at = 0
        for name, axes, _ in self._arrays:
            if 0 not in key[at : at + axes]:
                found[name] = key[at : at + axes]
            at += axes
        return found

    def _launches(self, key: Shape, flat: list[Any]) -> int:
        """How many launches of these extents work for as long as compiling takes, if all are like
        this one; 0 where that is not worth it ever."""
        if env.flag("VKCHI_SHAPES") == "first":
            return 1
        shapes = self.shapes_of(key)
        sizes = [prod(shapes[name]) * n for name, _, n in self._arrays if name in shapes]
        numbers = max(sum(sizes), self._ops(flat) // OPS)
        if numbers < FEWEST_NUMBERS:
            return 0
        is_cpu = self._runtime.device.caps.is_cpu
        each = numbers * (NUMBER_PROCESSOR if is_cpu else NUMBER_CARD)
        return max(1, int(self._price() / each))

    def _price(self) -> float:
        """What is compiled for, in what launches take."""
        if not self._has_next:
            return COMPILING
        dispatches = len(self._plain.artifact.dispatches) + 1
        ops = sum([ops for ops, _ in self._work])
        return max(EACH_OF_TIER * dispatches, OP_OF_TIER * ops)

    def _ops(self, flat: list[Any]) -> int:
        """About how many a launch of these numbers does."""
        each = zip(self._work, self._rounds(flat), strict=True)
        return sum([ops * max(0, n) for (ops, _), n in each])

    @cached_property
    def _rounds(self) -> Callable[[list[Any]], tuple[int, ...]]:
        """How often each part of the work is done, for the numbers of a launch."""
        counts = [count for _, count in self._work]
        return compile_counts(counts, count_reader(self._numbers))

    def _look_for(self, key: Shape) -> Form | None:
        """The code that another process has made. Not for ever: some programs repeat no shape."""
        if not self._looks or self._origin.home is None:
            return None
        from vkchi.cache import shaped  # not without a cache

        self._looks -= 1
        found = shaped.find(self._origin.home, self._origin.what, self.shapes_of(key))
        return None if found is None else self._or_plain(lambda: self._form_of(found))

    def _make(self, key: Shape) -> Form:
        """The code for these extents; that for any, where there is none."""
        return self._or_plain(lambda: self._form_of(self._compile(self.shapes_of(key))))

    def _compile(self, shapes: dict[str, Shape]) -> Artifact:
        began, title = perf_counter(), self._plain.artifact.name
        with compiling(title):
            made = self._build(shapes)
        self._runtime.compiled.append((title, perf_counter() - began))
        return made

    def _form_of(self, artifact: Artifact) -> Form:
        """An artifact as what runs; the code for any extents, where this one works on memory that
        its launches are not told of, or tells something. Raises DeviceError where there is no
        memory for what dispatches hand on."""
        plain, own = self._plain.artifact, artifact.temps.keys()
        is_known = artifact.reads - own <= plain.reads and artifact.writes - own <= plain.writes
        return self._make_form(artifact) if is_known and not artifact.sites else self._plain

    def _or_plain(self, make: Callable[[], Form]) -> Form:
        """What is made; the code for any extents, which is as right, where that fails. A bug of
        ours is told; what a signal handler of the user's raises is for the user."""
        try:
            return make()
        except (CompilationError, DeviceError, Unsupported):  # what is refused of this form alone
            return self._plain
        except BUGS as e:
            logger().warning(TOLD, self._plain.artifact.name, type(e).__name__, e)
            return self._plain

    def _build(self, shapes: dict[str, Shape]) -> Artifact:
        from vkchi.analysis.mixing import depends_on_tiling  # not in a process that finds all
        from vkchi.cache import shaped
        from vkchi.compiler import build
        from vkchi.ir.shaped import with_shapes

        home, what, read, make = self._origin
        given = read()
        if depends_on_tiling(given):
            raise Unsupported("iterations see their workgroup, and another form has others")
        options = self._runtime.options
        if home is not None:
            options = options._replace(cache=None)  # it is kept at the kernel's home
        make, caps = make or build, self._runtime.device.caps
        fn = with_shapes(given, shapes)
        return shaped.make(home, what, shapes, fn, lambda fn: make(fn, options, caps))
