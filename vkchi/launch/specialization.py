"""Shape specialization of hot kernels.

A kernel with array arguments is first compiled for any shape. Launches are counted per shape. When
launches of a shape have run for about as long as compiling takes, the Func is built again with its
extents as constants. Both times are estimates. Shapes of little work (SHAPE_SCALARS) are not
counted. The first MOST_SHAPES shapes that get so far are specialized; all others use the generic
code. `cache.content` keeps specialized code on disk, where other processes find it.

Variants read the same slots of the flat list and use the same arrays, but have their own
temporaries. They are equivalent up to the order and rounding of float operations, the sign of NaNs,
and the flushing of subnormals.

There is no specialization
- if building or loading the variant fails;
- if launches report or draw random numbers (`CompiledKernel.may_have_shapes`);
- if iterations observe a workgroup size that was not demanded.

    executable.shapes = ShapeSpecializer(executable, CodeSource(home, "", lambda: fn, build))
    form = executable.shapes.form(bound.flat)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from vkchi import env
from vkchi.compile_state import compiling
from vkchi.errors import CompilationError, DeviceError, Unsupported, VkchiError
from vkchi.interrupts.weak import insert_bounded
from vkchi.launch.executable import count_reader
from vkchi.logs import logger
from vkchi.target import tuning
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.target.shader import compile_counts
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.cache.compiled import CacheLocation
    from vkchi.ir.core import Func
    from vkchi.launch.executable import CodeVariant, Executable

Build = Callable[["Func", Options, Caps], Artifact]
Shape = tuple[int, ...]

# Exceptions that bugs raise.
BUGS = (VkchiError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
        RecursionError, TypeError, ValueError)  # fmt: skip
TOLD = (
    "%s(): there is no code for what its launches repeat (%s: %s), and that of the first ones goes "
    "on. This is a bug in vkchi, please report it; VKCHI_SHAPES=0 tries none"
)


class CodeSource(NamedTuple):
    """The source of an executable's code.

    - home: the kernel's entry in the disk cache, or None.
    - what: distinguishes executables made of one kernel.
    - read: returns the Func.
    - build: makes an artifact of a Func; None for `compiler.build_artifact`.
    """

    home: CacheLocation | None
    what: str
    read: Callable[[], Func]
    build: Build | None


class ShapeCounter:
    """Array shapes that launches used: their code variant and their counter.

    `left` is the number of launches until specialization. It is 0 if the variant is final.
    """

    __slots__ = ("form", "key", "left")

    def __init__(self, key: Shape, form: CodeVariant, left: int) -> None:
        self.key, self.form, self.left = key, form, left


class ShapeSpecializer:
    """Launch counters and code variants of an executable, by shape.

    `made` holds at most MOST_SHAPES specialized variants.
    """

    def __init__(self, executable: Executable, origin: CodeSource) -> None:
        self._runtime, self._origin = executable.runtime, origin
        self._plain, self._make_form = executable.form, executable.make_form
        arrays, types = executable.dynamic_arrays, executable.artifact.arrays
        self._arrays = [(name, len(places), types[name].scalars_per_element)
                        for name, places in arrays.items()]  # fmt: skip
        self._places = [place for places in arrays.values() for place in places]
        self._work, self._numbers = executable.artifact.work, executable.places
        self.made: dict[Shape, ShapeCounter] = {}
        self._counted: dict[Shape, ShapeCounter] = {}
        self._looks = tuning.MOST_SHAPES_COUNTED

    def form(self, flat: list[Any], launches: int = 1) -> CodeVariant:
        """Return the code variant for a launch, and count `launches` launches of its shapes.

        Compiles a variant when a counter is complete.
        """
        met = self.meet(flat)
        if met.left:
            self.count(met, launches)
        return met.form

    def meet(self, flat: list[Any]) -> ShapeCounter:
        """Return the counter of a launch's shapes, made if there is none.

        For new shapes, a variant on disk may be loaded.
        """
        key = tuple([flat[k] for k in self._places])
        return self.made.get(key) or self._counted.get(key) or self._begin(key, flat)

    def count(self, met: ShapeCounter, launches: int) -> None:
        """Count launches of `met`. At 0, compile its variant, or take generic code beyond
        MOST_SHAPES."""
        if met.left > launches:
            met.left -= launches
            return
        other = self.made.get(met.key)  # `met` may have been evicted and made again
        if other is None and len(self.made) < tuning.MOST_SHAPES:
            other = self.made[met.key] = ShapeCounter(met.key, self._make(met.key), 0)
            self._counted.pop(met.key, None)
        met.form = other.form if other is not None else self._plain
        met.left = 0

    def _begin(self, key: Shape, flat: list[Any]) -> ShapeCounter:
        if len(self.made) >= tuning.MOST_SHAPES or not self.shapes_of(key):
            return ShapeCounter(key, self._plain, 0)
        found = self._look_for(key)
        if found is not None:
            return self.made.setdefault(key, ShapeCounter(key, found, 0))
        met = ShapeCounter(key, self._plain, self._launches(key, flat))
        insert_bounded(self._counted, key, met, tuning.MOST_SHAPES_COUNTED)
        return met

    def shapes_of(self, key: Shape) -> dict[str, Shape]:
        """Return the shapes of the arrays, by name, without empty arrays.

        Arrays that a launch does not pass have extents of 0 too.
        """
        found: dict[str, Shape] = {}
        at = 0
        for name, axes, _ in self._arrays:
            if 0 not in key[at : at + axes]:
                found[name] = key[at : at + axes]
            at += axes
        return found

    def _launches(self, key: Shape, flat: list[Any]) -> int:
        """Return the estimated launches that take as long as compiling, or 0 for never."""
        if env.flag("VKCHI_SHAPES") == "first":
            return 1
        shapes = self.shapes_of(key)
        sizes = [prod(shapes[name]) * n for name, _, n in self._arrays if name in shapes]
        numbers = max(sum(sizes), self._ops(flat) // tuning.OPS_PER_SCALAR)
        if numbers < tuning.SHAPE_SCALARS:
            return 0
        each = numbers * self._runtime.device.caps.choose(tuning.RUN_SCALAR)
        words = sum(len(d.shader.words) // 4 for d in self._plain.artifact.dispatches)
        compile_time = max(tuning.COMPILE_SHAPE, tuning.COMPILE_SHAPE_WORD * words)
        return max(1, int(compile_time / each))

    def _ops(self, flat: list[Any]) -> int:
        each = zip(self._work, self._rounds(flat), strict=True)
        return sum([ops * max(0, n) for (ops, _), n in each])

    @cached_property
    def _rounds(self) -> Callable[[list[Any]], tuple[int, ...]]:
        """Function from the flat list to the execution count of each part of the work."""
        counts = [count for _, count in self._work]
        return compile_counts(counts, count_reader(self._numbers))

    def _look_for(self, key: Shape) -> CodeVariant | None:
        """Return the variant on disk, or None. Looks at most MOST_SHAPES_COUNTED times: some
        programs repeat no shape."""
        if not self._looks or self._origin.home is None:
            return None
        from vkchi.cache import content  # lazy: only with a cache

        self._looks -= 1
        found = content.find_specialized(self._origin.home, self._origin.what, self.shapes_of(key))
        return None if found is None else self._or_plain(lambda: self._form_of(found))

    def _make(self, key: Shape) -> CodeVariant:
        return self._or_plain(lambda: self._form_of(self._compile(self.shapes_of(key))))

    def _compile(self, shapes: dict[str, Shape]) -> Artifact:
        began, title = perf_counter(), self._plain.artifact.name
        with compiling(title):
            made = self._build(shapes)
        self._runtime.compiled.append((title, perf_counter() - began))
        return made

    def _form_of(self, artifact: Artifact) -> CodeVariant:
        """Load an artifact as a variant. Raises DeviceError if its temporaries cannot be allocated.

        Returns the first, unspecialized code if the artifact has report sites, or accesses arrays
        that launches do not bind.
        """
        plain, own = self._plain.artifact, artifact.temps.keys()
        is_known = artifact.reads - own <= plain.reads and artifact.writes - own <= plain.writes
        return self._make_form(artifact) if is_known and not artifact.sites else self._plain

    def _or_plain(self, make: Callable[[], CodeVariant]) -> CodeVariant:
        """Call `make`; return the first, unspecialized code if that fails.

        Exceptions that indicate bugs are logged.
        """
        try:
            return make()
        except (CompilationError, DeviceError, Unsupported):  # not supported for this variant
            return self._plain
        except BUGS as e:
            logger().warning(TOLD, self._plain.artifact.name, type(e).__name__, e)
            return self._plain

    def _build(self, shapes: dict[str, Shape]) -> Artifact:
        from vkchi.analysis.parallel_loops import (
            depends_on_tiling,  # lazy: not needed on cache hits
        )
        from vkchi.cache import content
        from vkchi.compiler import build_artifact
        from vkchi.ir.rebuild import with_shapes

        home, what, read, make = self._origin
        given = read()
        if depends_on_tiling(given):
            raise Unsupported("iterations see their workgroup, and another form has others")
        options = self._runtime.options
        if home is not None:
            options = options._replace(cache=None)  # cached with the kernel's entry instead
        make, caps = make or build_artifact, self._runtime.device.caps
        fn = with_shapes(given, shapes)
        return content.build_specialized(home, what, shapes, fn, lambda fn: make(fn, options, caps))
