"""Graphs: sequences of kernel launches, declared once and run by one call.

`Graph.run` checks and binds arguments once for all kernels. Launches that consist of dispatches
only are recorded. While the arrays stay the same, successive recorded launches run again as one
command; new scalars only change argument blocks.

Random seeds are fresh in each run. Other kernels are called normally, in order: those that report,
use gradients of their arguments, or have mutable constants. Under a tape, in debug mode and while
kernels are timed, all are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vkchi.errors import ArgumentError, KernelTypeError
from vkchi.fields.storage import Storage
from vkchi.graph.graph_arguments import Arg
from vkchi.interrupts.contexts import restoring
from vkchi.lang.value_keys import IdentityKey, has_dead_key, value_key
from vkchi.launch.replay import RecordedLaunch, Replay
from vkchi.runtime import Runtime, current_runtime
from vkchi.signature import read_parameters, span_of_function
from vkchi.signature.wording import describe_argument
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import is_real_scalar

if TYPE_CHECKING:
    from vkchi.kernel import BoundKernel, Kernel
    from vkchi.launch.compiled_kernel import CompiledKernel

T = TypeVar("T")
MOST_RECORDED = 8  # recordings per graph, by sets of arrays

Values = Mapping[str, Any]


class Launchable(Protocol):
    """Protocol of compiled and loaded kernels."""

    is_method: bool

    @property
    def __vkchi_func__(self) -> Any:
        """An object with the kernel's `__name__`."""

    def __call__(self, *args: Any) -> Any: ...

    def inspect(self, look: Callable[[CompiledKernel, Any], T], *args: Any) -> T:
        """Return `look(kernel, arguments)` for a call."""


class GraphNode(NamedTuple):
    """A kernel and its arguments: graph arguments and constants."""

    kernel: Launchable
    given: tuple[Any, ...]

    def is_plain(self, values: Values) -> bool:
        """True if a launch with these values can be recorded: no constants are mutable, see
        `is_plain_launch`."""
        rest = self.given[self.kernel.is_method :]
        if not all(isinstance(value, Arg) or is_immutable_constant(value) for value in rest):
            return False
        found: bool = self.kernel.inspect(is_plain_launch, *self.fill(values))
        return found

    def fill(self, values: Values) -> tuple[Any, ...]:
        return tuple(values[a.name] if isinstance(a, Arg) else a for a in self.given)


class Sequential:
    """A sequence of kernels: a part of a graph, which can be appended several times."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode | Sequential] = []

    def dispatch(self, kernel_fn: Kernel | BoundKernel, *args: Any) -> None:
        """Add the kernel `kernel_fn`.

        args: its arguments in order, each an `Arg`, or a constant for all runs.

        Raises ArgumentError for anything but a kernel, ArgumentListError for a wrong number of
        arguments. Raises KernelTypeError if an Arg contradicts the kernel's annotation, or is given
        for a template parameter.
        """
        from vkchi.kernel import BoundKernel, Kernel  # lazy: loaded graphs do not need it

        if isinstance(kernel_fn, BoundKernel):
            kernel_fn, args = kernel_fn.func, (*kernel_fn.args, *args)  # type: ignore[assignment]
        if not isinstance(kernel_fn, Kernel):
            raise ArgumentError(f"dispatch() takes a ti.kernel, not {describe_argument(kernel_fn)}")
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
        self.nodes.append(GraphNode(kernel_fn, given))

    def flat(self) -> Iterator[GraphNode]:
        for node in self.nodes:
            if isinstance(node, Sequential):
                yield from node.flat()
            else:
                yield node


class GraphBuilder(Sequential):
    """Builder of a graph."""

    def create_sequential(self) -> Sequential:
        """Return a new sequence, which is not part of the graph until it is appended."""
        return Sequential()

    def append(self, node: Sequential) -> None:
        """Append the sequence `node`; its contents are read by `compile`. Raises ArgumentError for
        anything but a sequence of `create_sequential`."""
        if not isinstance(node, Sequential) or isinstance(node, GraphBuilder):
            raise ArgumentError(
                f"append() takes what create_sequential() gave, not {describe_argument(node)}"
            )
        self.nodes.append(node)

    def compile(self) -> Graph:
        """Return the graph. Raises ArgumentError if one name denotes different arguments."""
        return Graph(self.flat())


class GraphSegment:
    """Successive kernels for fixed arrays: either all recorded, or all called."""

    def __init__(self, nodes: list[GraphNode], values: Values, *, is_plain: bool) -> None:
        self.nodes = nodes
        self.replay = record_nodes(nodes, values) if is_plain else None
        self.uses: dict[str, list[tuple[int, int]]] = {}
        for launch, node in enumerate(nodes):
            for k, arg in enumerate(node.given):
                if isinstance(arg, Arg) and arg.is_number:
                    self.uses.setdefault(arg.name, []).append((launch, k))

    def change(self, name: str, value: Any) -> None:
        """Set a scalar, vector or matrix argument; no effect if the kernels are called."""
        if self.replay is not None:
            self.replay.change(self.uses.get(name, ()), value)

    def run(self, values: Values) -> None:
        if self.replay is not None:
            self.replay.run()
        else:
            call_nodes(self.nodes, values)


class GraphRecording:
    """A graph's kernels for fixed arrays, with the scalars of the last run."""

    def __init__(self, nodes: list[GraphNode], values: Values, numbers: dict[str, Any]) -> None:
        found = groupby(nodes, lambda node: node.is_plain(values))
        self.parts = [GraphSegment(list(part), values, is_plain=kind) for kind, part in found]
        self.numbers = numbers

    def renew(self) -> bool:
        """Take the current numbers of objects; False if a kernel's code is not valid for the
        current Python values."""
        return all([part.replay is None or part.replay.renew() for part in self.parts])

    def change(self, numbers: dict[str, Any], values: Values) -> None:
        for name, number in numbers.items():
            if number != self.numbers[name]:
                for part in self.parts:
                    part.change(name, values[name])
        self.numbers = numbers


class Graph:
    """A compiled sequence of kernels, which `run` launches in order. `args`: its arguments by name.
    `nodes`: the kernels with their arguments."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self.nodes = list(nodes)
        self.args: dict[str, Arg] = {}
        for node in self.nodes:
            for arg in node.given:
                if isinstance(arg, Arg) and not self.args.setdefault(arg.name, arg).is_like(arg):
                    raise ArgumentError(f"the graph has two arguments `{arg.name}`: {arg}, and "
                                        f"{self.args[arg.name]}")  # fmt: skip
        self._runtime: Runtime | None = None
        self._recordings: dict[tuple[Any, ...], GraphRecording] = {}

    def run(self, args: Values) -> None:
        """Launch the kernels in order.

        args: a value for each argument, by name; other keys are ignored. A matrix may be given as
        its values in one sequence, row by row. Raises ArgumentError before any launch. Kernels
        that are called normally may raise later.
        """
        if type(args) is not dict and not isinstance(args, Mapping):
            raise ArgumentError(f"graph.run() takes a dict of values by name, not {args!r:.80}")
        missing = [name for name in self.args if name not in args]
        if missing:
            raise ArgumentError(f"the graph's arguments have no values: {', '.join(missing)}")
        args = {name: arg.unflatten(args[name]) for name, arg in self.args.items()}
        arrays, numbers = [], {}
        for name, arg in self.args.items():
            if arg.is_number:
                numbers[name] = arg.read(args[name])
            else:
                arrays.append(arg.read(args[name]))
        runtime = current_runtime()
        with restoring(runtime.lock), runtime.lock:
            if runtime.options.debug or runtime.tape is not None or runtime.device.is_timing:
                call_nodes(self.nodes, args)
            else:
                self._replay(runtime, tuple(arrays), numbers, args)

    def _replay(
        self, runtime: Runtime, arrays: tuple[Any, ...], numbers: dict[str, Any], args: Values
    ) -> None:
        if runtime is not self._runtime:
            self._recordings = {}
            self._runtime = runtime
        recording = self._recordings.pop(arrays, None)  # put back unless a launch raises
        if recording is None or not recording.renew():
            self._forget()
            recording = GraphRecording(self.nodes, args, numbers)
        else:
            recording.change(numbers, args)
        for part in recording.parts:
            part.run(args)
        self._recordings[arrays] = recording

    def _forget(self) -> None:
        """Drop recordings of destroyed arrays, and the least recently used ones from MOST_RECORDED
        on."""
        alive = [key for key in self._recordings if not has_dead_key(key)]
        kept = alive[max(0, len(alive) - MOST_RECORDED + 1) :]
        self._recordings = {key: self._recordings[key] for key in kept}


def call_nodes(nodes: Iterable[GraphNode], values: Values) -> None:
    for node in nodes:
        node.kernel(*node.fill(values))


def is_plain_launch(kernel: CompiledKernel, args: tuple[Any, ...]) -> bool:
    """True if a launch consists of dispatches on device arrays only; it may draw random numbers."""
    pairs = zip(kernel.parameters, args, strict=True)
    leaves = (leaf for parameter, arg in pairs for leaf in parameter.leaves(arg))
    lie_here = (p.kind != "array" or isinstance(a, Storage) for p, a in leaves)
    return kernel.is_recordable and all(lie_here)


def record_nodes(nodes: list[GraphNode], values: Values) -> Replay:
    """Return a replay of recordable kernels. Raises ArgumentError."""

    def make(node: GraphNode) -> RecordedLaunch:
        kernel = node.kernel
        look = partial(RecordedLaunch, kernel.__vkchi_func__.__name__)
        made: RecordedLaunch = kernel.inspect(look, *node.fill(values))
        return made

    return Replay([make(node) for node in nodes])


def is_immutable_constant(value: Any) -> bool:
    """True if a constant cannot change unnoticed: a string, a number, a view, or an object compared
    by identity."""
    if isinstance(value, str) or is_real_scalar(value) or hasattr(type(value), "__vkchi_view__"):
        return True
    return isinstance(value_key(value), IdentityKey)
