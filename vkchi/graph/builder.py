"""Graphs: a program says which kernels follow each other, and runs them all by one call.

Owns: the public classes, what is recorded for which arguments. Must not know: how launches bind,
commands.

`Graph.run` checks and binds arguments once for all kernels. Launches that are nothing but their
dispatches are recorded, and run again by one command for as long as the arrays are the same ones;
another number changes the argument blocks it stands in. What cannot be recorded is called as any
kernel is, at its place: kernels that may report or draw random numbers, or use gradients of their
arguments; under a tape, in debug mode and while kernels are measured that is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vkchi.errors import ArgumentError, KernelTypeError
from vkchi.fields.storage import Storage
from vkchi.graph.arguments import Arg
from vkchi.interrupts.locks import restoring
from vkchi.lang.contents import ById, contents, is_stale
from vkchi.launch.replay import Launch, Replay
from vkchi.runtime import Runtime, current
from vkchi.signature import read_parameters, span_of_function
from vkchi.signature.wording import describe
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import is_real

if TYPE_CHECKING:
    from vkchi.kernel import BoundKernel, Kernel
    from vkchi.launch import Plan

T = TypeVar("T")
MOST_RECORDED = 8  # sets of arrays that a graph keeps commands for

Values = Mapping[str, Any]


class Launchable(Protocol):
    """A kernel, be it compiled here or loaded."""

    is_method: bool

    @property
    def __vkchi_func__(self) -> Any:
        """What has its name."""

    def __call__(self, *args: Any) -> Any:
        """Launch it."""

    def examine(self, look: Callable[[Plan, Any], T], *args: Any) -> T:
        """What `look` says of the plan for a call and of its arguments."""


class Node(NamedTuple):
    """A kernel and what it is given, in order: arguments of the graph, and values."""

    kernel: Launchable
    given: tuple[Any, ...]

    def is_plain(self, values: Values) -> bool:
        """Whether the launch with these arguments can be recorded."""
        rest = self.given[self.kernel.is_method :]
        if not all(isinstance(value, Arg) or is_fixed(value) for value in rest):
            return False
        found: bool = self.kernel.examine(is_plain_launch, *self.fill(values))
        return found

    def fill(self, values: Values) -> tuple[Any, ...]:
        """The arguments of a call."""
        return tuple(values[a.name] if isinstance(a, Arg) else a for a in self.given)


class Sequential:
    """Kernels one after the other: a part of a graph, which can be appended several times."""

    def __init__(self) -> None:
        self.nodes: list[Node | Sequential] = []

    def dispatch(self, kernel_fn: Kernel | BoundKernel, *args: Any) -> None:
        """Add a kernel. args: what it takes, in order: an `Arg`, or a value for all runs.

        Raises ArgumentError for what is no kernel, ArgumentListError for too few or too many
        arguments, KernelTypeError where the kernel's annotation says otherwise than an Arg.
        """
        from vkchi.kernel import BoundKernel, Kernel  # which loaded graphs need not

        if isinstance(kernel_fn, BoundKernel):
            kernel_fn, args = kernel_fn.func, (*kernel_fn.args, *args)  # type: ignore[assignment]
        if not isinstance(kernel_fn, Kernel):
            raise ArgumentError(f"dispatch() takes a ti.kernel, not {describe(kernel_fn)}")
        fn = kernel_fn.__vkchi_func__
        given = kernel_fn.arrange(args, {})
        for parameter, arg in zip(read_parameters(fn, kernel_fn.is_method), given, strict=True):
            why = arg.misfit(parameter) if isinstance(arg, Arg) else ""
            if why:
                raise KernelTypeError(
                    f"graph argument `{arg.name}`: argument `{parameter.name}` of kernel "
                    f"{fn.__name__}(): {why}",
                    span_of_function(fn),
                )
        self.nodes.append(Node(kernel_fn, given))

    def flat(self) -> Iterator[Node]:
        """All kernels in order."""
        for node in self.nodes:
            if isinstance(node, Sequential):
                yield from node.flat()
            else:
                yield node


class GraphBuilder(Sequential):
    """What a graph is made with."""

    def create_sequential(self) -> Sequential:
        """A part that is not in the graph before it is appended."""
        return Sequential()

    def append(self, node: Sequential) -> None:
        """Add all that a part holds when the graph is compiled. Raises ArgumentError."""
        if not isinstance(node, Sequential) or isinstance(node, GraphBuilder):
            raise ArgumentError(
                f"append() takes what create_sequential() gave, not {describe(node)}"
            )
        self.nodes.append(node)

    def compile(self) -> Graph:
        """The graph. Raises ArgumentError where one name stands for different arguments."""
        return Graph(self.flat())


class Part:
    """Kernels that follow each other, for certain arrays: recorded, or to be called."""

    def __init__(self, nodes: list[Node], values: Values, *, is_plain: bool) -> None:
        self.nodes = nodes
        self.replay = record(nodes, values) if is_plain else None
        self.uses: dict[str, list[tuple[int, int]]] = {}
        for launch, node in enumerate(nodes):
            for k, arg in enumerate(node.given):
                if isinstance(arg, Arg) and arg.is_number:
                    self.uses.setdefault(arg.name, []).append((launch, k))

    def change(self, name: str, value: Any) -> None:
        """Another number."""
        if self.replay is not None:
            self.replay.change(self.uses.get(name, ()), value)

    def run(self, values: Values) -> None:
        """Launch all."""
        if self.replay is not None:
            self.replay.run()
        else:
            call(self.nodes, values)


class Recording:
    """A graph's kernels for certain arrays, and the numbers that were given last."""

    def __init__(self, nodes: list[Node], values: Values, numbers: dict[str, Any]) -> None:
        found = groupby(nodes, lambda node: node.is_plain(values))
        self.parts = [Part(list(part), values, is_plain=kind) for kind, part in found]
        self.numbers = numbers

    @property
    def is_current(self) -> bool:
        """True if values of Python that kernels were compiled with are as they were."""
        return all([part.replay is None or part.replay.is_current for part in self.parts])

    def change(self, numbers: dict[str, Any], values: Values) -> None:
        """Take over the numbers that are others."""
        for name, number in numbers.items():
            if number != self.numbers[name]:
                for part in self.parts:
                    part.change(name, values[name])
        self.numbers = numbers


class Graph:
    """Kernels that `run` launches one after the other. `args` are the arguments, by name, `nodes`
    the kernels with what they are given."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)
        self.args: dict[str, Arg] = {}
        for node in self.nodes:
            for arg in node.given:
                if isinstance(arg, Arg) and not self.args.setdefault(arg.name, arg).is_like(arg):
                    raise ArgumentError(f"the graph has two arguments `{arg.name}`: {arg}, and "
                                        f"{self.args[arg.name]}")  # fmt: skip
        self._runtime: Runtime | None = None
        self._recordings: dict[tuple[Any, ...], Recording] = {}

    def run(self, args: Values) -> None:
        """Launch the kernels. args: a value for each argument, by name; others are ignored.

        Raises ArgumentError before anything is launched, but for what kernels that are not recorded
        find themselves.
        """
        if type(args) is not dict and not isinstance(args, Mapping):
            raise ArgumentError(f"graph.run() takes a dict of values by name, not {args!r:.80}")
        missing = [name for name in self.args if name not in args]
        if missing:
            raise ArgumentError(f"the graph's arguments have no values: {', '.join(missing)}")
        arrays, numbers = [], {}
        for name, arg in self.args.items():
            if arg.is_number:
                numbers[name] = arg.read(args[name])
            else:
                arrays.append(arg.read(args[name]))
        runtime = current()
        with restoring(runtime.lock), runtime.lock:
            if runtime.options.debug or runtime.tape is not None or runtime.device.is_timing:
                call(self.nodes, args)
            else:
                self._replay(runtime, tuple(arrays), numbers, args)

    def _replay(
        self, runtime: Runtime, arrays: tuple[Any, ...], numbers: dict[str, Any], args: Values
    ) -> None:
        if runtime is not self._runtime:
            self._recordings = {}
            self._runtime = runtime
        recording = self._recordings.pop(arrays, None)  # comes back where nothing is raised
        if recording is None or not recording.is_current:
            self._forget()
            recording = Recording(self.nodes, args, numbers)
        else:
            recording.change(numbers, args)
        for part in recording.parts:
            part.run(args)
        self._recordings[arrays] = recording

    def _forget(self) -> None:
        """Drop what was recorded for arrays that are gone, or not used for longest."""
        alive = [key for key in self._recordings if not is_stale(key)]
        kept = alive[max(0, len(alive) - MOST_RECORDED + 1) :]
        self._recordings = {key: self._recordings[key] for key in kept}


def call(nodes: Iterable[Node], values: Values) -> None:
    """Call the kernels."""
    for node in nodes:
        node.kernel(*node.fill(values))


def is_plain_launch(plan: Plan, args: tuple[Any, ...]) -> bool:
    """Whether a launch is nothing but its dispatches, on arrays that lie on the device; it may draw
    random numbers."""
    pairs = zip(plan.parameters, args, strict=True)
    leaves = (leaf for parameter, arg in pairs for leaf in parameter.leaves(arg))
    lie_here = (p.kind != "array" or isinstance(a, Storage) for p, a in leaves)
    return plan.is_recordable and all(lie_here)


def record(nodes: list[Node], values: Values) -> Replay:
    """Kernels whose plans are plain. Raises ArgumentError."""

    def make(node: Node) -> Launch:
        kernel = node.kernel
        look = partial(Launch, kernel.__vkchi_func__.__name__)
        made: Launch = kernel.examine(look, *node.fill(values))
        return made

    return Replay([make(node) for node in nodes])


def is_fixed(value: Any) -> bool:
    """Whether what kernels find in a value for all runs cannot change without their knowing."""
    return isinstance(value, str) or is_real(value) or isinstance(contents(value), ById)
