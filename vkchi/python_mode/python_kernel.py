"""A kernel compiled to run as plain Python: a launch evaluates it on the device's arrays.

Arguments, checks and copies of host arrays are those of `CompiledKernel`. Arrays that the host can
address are used in place. Others are copied when the kernel first uses them, and written back after
the launch, also if it fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from sys import gettrace, settrace
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from vkchi.compile_state import DeepRecursion
from vkchi.compiler import lower_only, memory_access
from vkchi.errors import Unsupported
from vkchi.fields.storage import Storage
from vkchi.frontend.calls.inline import annotations_of, returned_types
from vkchi.frontend.lowering import declare_argument, declare_returns
from vkchi.frontend.state.scope import Activation
from vkchi.frontend.syntax.source import source_of
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import ArrayValue, InterpreterReport
from vkchi.ir.ops import GROUPED, SYNCS
from vkchi.launch.call_cache import GuardedKernels
from vkchi.launch.compiled_kernel import Accepted, CompiledKernel
from vkchi.python_mode.evaluation import Evaluator, ReportSink
from vkchi.python_mode.stepping import Run, run_body
from vkchi.reports.delivery import check_error, print_lines
from vkchi.reports.sites import ReportRecord
from vkchi.runtime import Runtime
from vkchi.signature.bound import BoundArguments
from vkchi.target.remarks import issue_warnings
from vkchi.tuples import NamedTuple
from vkchi.types import Array, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.frontend.argspec import ArgSpec
    from vkchi.signature.signer import Signer


class PythonKernel(CompiledKernel):
    """A kernel whose launches run as Python.

    - `function`: the kernel's function.
    - `describe`: returns the descriptions of a call's arguments.
    - `compile_for_device`: makes the kernel for tapes, graphs and gradients.
    - `device_kernels`: those made so far. Unlike this kernel, their code depends on facts about
      member arrays.
    """

    is_plain = is_recordable = False
    function: Callable[[], FunctionType]
    describe: Callable[[tuple[Any, ...]], tuple[ArgSpec, ...]]
    compile_for_device: Callable[[tuple[Any, ...]], CompiledKernel]
    device_kernels: GuardedKernels

    def on_device(self, args: tuple[Any, ...]) -> Accepted:
        """Return the kernel that runs on the device, and its arguments."""
        given = args[: len(self.signer.parameters)]
        with restoring(self.runtime.lock), self.runtime.lock:
            return self.device_kernels.find_or_add(given, lambda: self.compile_for_device(given))

    @cached_property
    def _refused(self) -> str | None:
        return exclusion_of(self.func)

    def execute(
        self, args: tuple[Any, ...], bound: BoundArguments, seeds: Callable[[], int] | None
    ) -> None:
        """Run the kernel, with the debugger's trace function suspended in vkchi's own frames.

        Raises Unsupported for kernels of EXCLUDED.
        """
        if self._refused is not None:
            raise Unsupported(self._refused)
        trace = gettrace()
        depth = DeepRecursion.hold()  # a call takes about 15 frames
        try:
            settrace(None)
            launch = PythonLaunch(self, args, bound, seeds)
            launch.cx.trace = trace
            with np.errstate(all="ignore"):
                trace = launch.run()
        finally:
            del depth  # a traceback may keep this frame
            leave_frames(sys._getframe())
            settrace(trace)


def make_kernel(
    runtime: Runtime, fn: FunctionType, signer: Signer, args: tuple[Any, ...],
    key: tuple[Any, ...], compile_for_device: Callable[[tuple[Any, ...]], CompiledKernel],
) -> CompiledKernel:  # fmt: skip
    """Lower a kernel, which raises its errors; issue its warnings, and return it."""
    compiled = lower_only(fn, signer.specs(args, key), runtime.options)
    if compiled.interface.cautions:
        issue_warnings(compiled.interface.cautions)
    kernel = PythonKernel(runtime, compiled, signer, args, fn)
    reads, writes = memory_access(kernel.func)
    known = compiled.artifact.arrays.keys()
    kernel.read, kernel.written = set(reads & known), set(writes & known)
    kernel.reads, kernel.writes = reads & known, writes & known
    kernel.used = kernel.reads | kernel.writes
    kernel.function = lambda: fn
    count = len(signer.parameters)
    kernel.describe = lambda args: signer.specs(args[:count], signer.sign(args[:count]))
    kernel.compile_for_device, kernel.device_kernels = compile_for_device, GuardedKernels()
    return kernel


def leave_frames(frame: FrameType | None) -> None:
    """Remove a debugger's trace functions from vkchi's frames, in which it would stop next."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("vkchi."):
        if hasattr(getattr(frame.f_trace, "__self__", None), "stop_here"):  # of a bdb.Bdb
            frame.f_trace = None
        frame = frame.f_back


class PythonLaunch:
    """One launch: the arrays that it uses, and its reports."""

    def __init__(
        self, kernel: PythonKernel, args: tuple[Any, ...], bound: BoundArguments,
        seeds: Callable[[], int] | None,
    ) -> None:  # fmt: skip
        if kernel.has_pools:
            kernel.refuse_pools("kernels that run as Python")
        self.kernel, self.args, self.bound, self.seeds = kernel, args, bound, seeds
        self.arrays = {**kernel.fields(args), **bound.arrays}
        self.numbers: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}  # the user's arrays, by parameter
        self._read_arguments()
        self.evaluator = Evaluator(kernel.function().__name__, ReportSink(self.deliver))
        self.warned: set[Any] = set()
        self.copies: dict[int, tuple[Storage, Any]] = {}  # by the `id` of the array
        self.cx = Run(kernel.runtime.options, self.evaluator, self.bind, self.renew_seed)

    def _read_arguments(self) -> None:
        kernel = self.kernel
        for parameter, arg in zip(kernel.parameters, self.args, strict=True):
            for p, value in parameter.leaves(arg):
                if p.kind in ("scalar", "tensor"):
                    bound = BoundArguments(kernel.runtime, [])
                    p.bind(value, bound)
                    self.numbers[p.name] = bound.flat
                else:
                    self.objects[p.name] = value
        self.objects |= {one.name: one.owner for one in self.bound.imports}

    # --- parameters ----------------------------------------------------------------------------

    def bind(self, param: Param, binding: tuple[Any, ...]) -> Any:
        """Return the value of a parameter of the kernel, by its binding."""
        kind = binding[0]
        if kind == "seed":
            return np.uint32(0)
        if not isinstance(param.type, Array):
            t = param.type
            found = np.asarray(self.numbers[binding[1]]).astype(scalar_of(t).dtype)
            return found.reshape(shape_of(t))[()]
        if kind == "field":
            array = binding[1]
        elif kind == "return":
            array = self.kernel.returns[binding[1]]
        else:
            array = self.arrays.get(param.name if kind == "grad" else binding[1])
            if array is None:  # the kernel was compiled for another path to the array
                member = self.cx.dependencies.member(binding[1])
                array = member.grad if kind == "grad" else member
        if kind == "arg" and binding[1] in self.objects:
            self.cx.shown[param] = self.objects[binding[1]]
        return ArrayValue(self.contents(array), param.type)

    def contents(self, array: Any) -> Any:
        """Return an array's memory as numpy: in place, or a copy that is written back after the
        launch.

        An array of numpy or torch that was copied to the device is used itself instead of a copy,
        if its type and shape fit.
        """
        array.ready_to_write()
        if id(array) in self.copies:
            return self.copies[id(array)][1]
        view = next((one.view for one in self.bound.imports if one.array is array), None)
        if view is None:
            shared = array.in_place()
            if shared is not None:
                return shared
        wanted = (array.number.dtype, array.shape + shape_of(array.elem))
        fits = view is not None and (view.dtype, view.shape) == wanted and view.flags.writeable
        self.copies[id(array)] = array, view if fits else array.kept()
        return self.copies[id(array)][1]

    def renew_seed(self) -> None:
        if self.seeds is not None:
            self.evaluator.seed = self.seeds()

    # --- running -------------------------------------------------------------------------------

    def run(self) -> Any:
        """Run the kernel's statements, then write copied arrays back, also after an error.

        Returns the trace function that is active after the kernel.
        """
        kernel, cx, fn = self.kernel, self.cx, self.kernel.function()
        cx.act = Activation(fn, source_of(fn), None, 0, is_kernel=True)
        cx.locate(cx.act.source.node)
        cx.dependencies.functions[fn] = None
        self.renew_seed()
        try:
            with cx.b.region():
                for arg in kernel.describe(self.args):
                    declare_argument(cx, arg)
                note = annotations_of(fn, cx.act.source).get("return")
                returns = () if note is None else returned_types(cx, note)
                cx.act.returns, _ = declare_returns(cx, returns)
                run_body(cx)
                return cx.trace
        finally:
            for array, values in self.copies.values():
                array.keep(values)
            vars(cx).clear()  # break reference cycles, which would keep the user's arrays alive

    def deliver(self, report: InterpreterReport) -> None:
        """Print a line, warn of an overflow, or raise KernelAssertionError for a failed check."""
        site = self.cx.reports.sites[report.site]
        values = tuple([np.asarray(v).tolist() for v in report.values])
        record = ReportRecord(site, report.thread, values)
        if report.kind == "report_line":
            print_lines([record], 0)
        elif report.kind == "report_once":
            if (site.span, site.parts) not in self.warned:  # once per launch
                self.warned.add((site.span, site.parts))
                self.kernel.runtime.reports.warn([record])
        else:
            raise check_error([record], 1)


# --- differences from kernels on the device -------------------------------------------------------
# EXCLUDED and DIFFERENT are the list in docs/language/debugging.md.


class Exclusion(NamedTuple):
    """Kernels that raise an error: those with one of these ops.

    `subject` is the user's name of them, and the subject of the error's sentence.
    """

    subject: str
    kinds: frozenset[str]


class Difference(NamedTuple):
    """A part of programs, and its behaviour in this mode."""

    subject: str
    behaviour: str


EXCLUDED = (
    Exclusion(
        "operations of workgroups and subgroups (`ti.simt`), shared arrays",
        frozenset({*GROUPED, *SYNCS, "shared"}),
    ),
)
DIFFERENT = (
    Difference(
        "gradients, tapes, forward mode; graphs and `ti.record`; exported modules",
        "run on the device, without stops",
    ),
    Difference("kernels of vkchi itself, such as solvers and `ti.algorithms`", "run on the device"),
    Difference("recursive real functions", "run as Python, without stops in them"),
    Difference(
        "functions of Python that run at compile time, and change objects",
        "run at each launch, and once before the first and after each change of values that they "
        "read",
    ),
    Difference(
        "a failed check of debug mode", "raises at once; the remaining iterations do not run"
    ),
    Difference("sums of f16 in a loop", "are rounded at each addition, not once"),
    Difference(
        "stores in a row to numbers that share an exponent", "are rounded one by one, not together"
    ),
    Difference("lines that kernels print", "appear immediately, and their number has no limit"),
    Difference('`ti.init(debug="nan")`', "reports nothing"),
    Difference(
        "`ti.profiler`", "lists only kernels that run on the device, such as those in tapes"
    ),
    Difference("races in debug mode", "are not reported: iterations run in order"),
)
NOT_RUN = "kernels with them do not run as Python"  # in the error of each excluded kernel


def exclusion_of(fn: Func) -> str | None:
    """Return the error of a kernel that does not run as Python; None for others."""
    for op in walk(fn.body):
        for row in EXCLUDED:
            if op.kind in row.kinds:
                place = f"{op.span.place}: " if op.span is not None else ""
                return f"{place}{row.subject}: {NOT_RUN}"
    return None
