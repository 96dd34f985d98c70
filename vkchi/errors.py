"""Exception and warning classes of vkchi, the rendering of compile errors, and functions that warn.

`public_names` exports some classes under Taichi's names. docs/design.md part 8 defines the form of
messages.

    raise KernelTypeError("operands of `+` have different shapes", span, label="f32 and u1")
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from vkchi.span import PACKAGE, Span, is_ours, line_of, render_carets, render_chain, user_span

if TYPE_CHECKING:
    from typing import Self


class VkchiError(Exception):
    """Base class of vkchi's own exceptions.

    Making one installs hooks that show uncaught tracebacks without vkchi's frames. `hides_frames`:
    False in classes whose tracebacks are shown whole.
    """

    hides_frames: ClassVar[bool] = True
    is_transient = False  # True if another thread caused it, so that a repetition may succeed

    def __new__(cls, *args: object, **facts: object) -> Self:
        if not sys.is_finalizing():  # an import would fail then, or block
            from vkchi import tracebacks  # `import vkchi` loads this module, not that one

            tracebacks.install()
        return super().__new__(cls, *args, **facts)

    def _render_traceback_(self) -> list[str]:
        """The traceback in IPython, which calls this method."""
        from vkchi.tracebacks import render_in_notebook

        return render_in_notebook(self)


class CompilationError(VkchiError):
    """Error in a kernel. The message shows the source line of `span`, if it has one.

    `sentence` describes the error; `label` is printed beside the carets. `notes` are (sentence,
    span) pairs that explain the types and values involved. `help` suggests a fix. If `span` is in a
    kernel of vkchi itself, such as a copy, the calling line of the user's Python code is shown.
    """

    def __init__(
        self,
        sentence: str,
        span: Span | None = None,
        *,
        label: str = "",
        notes: Sequence[tuple[str, Span | None]] = (),
        help: str = "",
    ) -> None:
        self.sentence, self.label, self.help = sentence, label, help
        self.span = user_span() if is_ours(span) else span
        self.notes = tuple((text, None if is_ours(at) else at) for text, at in notes)
        super().__init__(render_error(self))


class KernelSyntaxError(CompilationError, SyntaxError):
    """Error: syntax that kernels do not support, or an invalid use of syntax or of a decorator."""

    def __init__(self, sentence: str, span: Span | None = None, **facts: object) -> None:
        CompilationError.__init__(self, sentence, span, **facts)  # type: ignore[arg-type]
        self.msg = self.args[0]

    def __str__(self) -> str:
        return str(self.args[0])


class KernelTypeError(CompilationError, TypeError):
    """Error: values of the wrong type or shape in a kernel."""


class KernelValueError(KernelTypeError, ValueError):
    """Error: an invalid constant as bound or step of a loop in a kernel, or an invalid type of a
    struct's member."""


class KernelNameError(CompilationError, NameError):
    """Error: a name that is not defined at its use in a kernel."""


class KernelShapeError(KernelTypeError, ValueError):
    """Error: incompatible shapes of vectors or matrices in Python; a ValueError, as in numpy."""


class KernelCallError(KernelSyntaxError, KernelTypeError):
    """Error: unsuitable arguments of a call in a kernel, or of `ti.ndrange`.

    A TypeError for Python, a SyntaxError for Taichi.
    """


class MissingNameError(VkchiError, AttributeError):
    """Error: a module of vkchi, a saved module, a field or an ndarray has no attribute of this
    name.

    `help` is called when the message is shown, because `hasattr` discards most of these errors.
    Python adds no suggestion of its own, because `obj` is not set.
    """

    def __init__(self, sentence: str, name: str, help: Callable[[], str]) -> None:
        super().__init__(sentence)
        self.name, self._help = name, help

    def __str__(self) -> str:
        help = self._help()
        return f"{self.args[0]}\nhelp: {help}" if help else str(self.args[0])

    def __reduce__(self) -> Any:
        return MissingNameError, (str(self), self.name, str)


class IndexingError(VkchiError, IndexError):
    """Error: an invalid index or number of indices, in a kernel or in Python."""


class KernelIndexError(CompilationError, IndexingError):
    """Error: invalid indices in a kernel, found at compile time, or of a `ti.Matrix` in Python."""


class KernelIndexTypeError(KernelIndexError, KernelTypeError):
    """Error: an index that is not an integer."""


class GradientError(CompilationError):
    """Error: a gradient that cannot be correct.

    The operation has no derivative, or memory that it needs is lost.
    """


class LostValueError(GradientError):
    """Error: a gradient outside tapes needs a value that the kernel has overwritten or drawn."""


class KernelRuntimeError(VkchiError, RuntimeError):
    """Error at run time: device, memory, driver, a call in the wrong state."""


class ModuleError(KernelRuntimeError, ValueError):
    """Error: a saved module is missing, damaged or of another version, or a path is no saved
    module."""


class KernelFieldError(CompilationError, KernelRuntimeError):
    """Error: a kernel uses a field without memory: not placed, or destroyed."""


class DeviceError(KernelRuntimeError):
    """Error: no driver, no device, a missing device feature, out of memory, device lost."""


class CallError(KernelRuntimeError):
    """Base of errors of a call of vkchi: `span` is the user's line. With Python 3.11 and later it
    is added to the error as a note."""

    span: Span | None = None
    place_note = ""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)
        if self.span is None:
            self.span = user_span()
        if self.span is not None and hasattr(self, "add_note"):
            lines = [f"called at {self.span.place}", *render_carets(self.span)]
            self.place_note = "\n".join(lines)
            self.add_note(self.place_note)


class DistributedError(CallError):
    """Error of a group of processes: a rank died, timed out or disagrees, or the group did not
    form."""


class ArrayIndexError(KernelRuntimeError, IndexingError):
    """Error: an array was indexed in Python with invalid indices: their number, type or range."""


class ArrayIndexCountError(CompilationError, ArrayIndexError, AssertionError):
    """Error: an array was indexed in Python with the wrong number of indices.

    An IndexError for Python, an AssertionError for Taichi's fields, a compilation error for its
    ndarrays.
    """


class ArrayIndexTypeError(ArrayIndexError, TypeError):
    """Error: an array was indexed in Python with an object that is not an integer."""


class ArgumentError(CallError, TypeError, ValueError):
    """Error: an invalid argument of a kernel, an array method, or another function of vkchi.

    Taichi raises TypeError or ValueError, depending on the case.
    """


class DeclarationError(ArgumentError, KernelSyntaxError):
    """Error: an invalid declaration of fields or of a torch operator; a SyntaxError for Taichi."""


class OptionError(ArgumentError, AttributeError):
    """Error: `ti.cfg` has no such option, or it cannot be assigned."""


class UnknownOptionError(ArgumentError, KeyError):
    """Error: an unknown option of `ti.init`."""

    def __str__(self) -> str:
        return str(self.args[0])


class ArgumentShapeError(ArgumentError, IndexError):
    """Error: values of the wrong shape for an element."""


class ArgumentListError(ArgumentError, KernelSyntaxError):
    """Error: a kernel call with missing, surplus or unknown arguments.

    A TypeError for Python, a SyntaxError for Taichi.
    """


class NotIterableError(ArgumentError, NotImplementedError):
    """Error: iteration over an array in Python.

    A TypeError for Python, a NotImplementedError for Taichi.
    """


class ToolError(ArgumentError, ValueError, AssertionError):
    """Error: an object that a function of ti.tools, ti.GUI or ti.ui does not accept.

    Taichi raises ValueError or AssertionError.
    """


class MissingPackageError(KernelRuntimeError, ImportError):
    """Error: a required package or program is not installed; the message names it."""


class KernelAssertionError(KernelRuntimeError, AssertionError):
    """Error: a failed `assert` in a kernel, or another failed check that a launch reports.

    Subclasses are more specific. A recursion that is too deep raises this class.
    """


class VerifyError(KernelAssertionError):
    """Error: the results of a device differ from those of the reference interpreter."""


class DataAccessError(GradientError, KernelAssertionError):
    """Error: a kernel breaks one of Taichi's data-access rules in a tape that checks them.

    An AssertionError for Taichi.
    """


class KernelBoundsError(KernelAssertionError, ArrayIndexError):
    """Error: an index out of range.

    It is an index of an array in Python or, in debug mode, of an array, vector or matrix in a
    kernel.
    """


class KernelDivisionError(KernelAssertionError, ZeroDivisionError):
    """Error of debug mode: integer division by zero in a kernel."""


class TensorGradientError(GradientError, KernelRuntimeError):
    """Error: torch requires a derivative that vkchi cannot compute.

    A RuntimeError, as in torch.
    """


class KernelNanError(KernelAssertionError, FloatingPointError):
    """Error of `debug="nan"`: a kernel stored NaN or an infinity."""


class KernelRangeError(KernelAssertionError, ValueError):
    """Error: a loop's step is 0, its bound is beyond its index type, or it has too many iterations.

    The kernel reports it at run time.
    """


class CacheWarning(UserWarning):
    """Warning: the cache of compiled shaders is unusable, or an entry is damaged."""


class KernelOverflowWarning(RuntimeWarning):
    """Warning: an integer from Python was wrapped to fit its type, or a kernel's arithmetic
    wrapped.

    Wraparound in kernels is detected in debug mode only.
    """


class KernelRaceWarning(RuntimeWarning):
    """Warning: iterations of a parallel loop conflict, so that the result depends on their order.

    This is proved from the IR and the arguments of a call, or detected in a trial or in debug mode.
    """


class RecompilationWarning(RuntimeWarning):
    """Warning: repeated compilation of a kernel for a Python value that changes."""


class ConversionWarning(RuntimeWarning):
    """Warning: an implicit conversion that loses information: a fraction, or values out of range.

    `ti.init(strict=True)` makes it an error.
    """


class ConstantWarning(RuntimeWarning):
    """Warning: a call at compile time whose result varies, such as `time.time()`; it runs once.

    `ti.init(strict=True)` makes it an error.
    """


class UnrollWarning(RuntimeWarning):
    """Warning: a loop is unrolled to so many operations that compilation is slow."""


class SerialLoopWarning(RuntimeWarning):
    """Warning: a long loop of a kernel, not in another loop, runs serially, because its iterations
    depend on each other or because it is under a condition.

    `ti.loop_config(serialize=True)` before the loop asks for that, without a warning.
    """


class SubgroupWarning(RuntimeWarning):
    """Warning: a subgroup exchange with a distance beyond the device's subgroup size."""


class GradientWarning(RuntimeWarning):
    """Warning: `kernel.grad(...)` has no effect, because the results that depend on its inputs have
    no gradients.

    With `missing_gradient="warn"` also: a derivative flows through an array without a gradient or
    dual, which counts as constant.
    """


class SolverWarning(RuntimeWarning):
    """Warning: the residual of a solver's result exceeds its tolerance."""


def warn_user(text: str, kind: type[Warning]) -> None:
    """Warn at the innermost line outside of this package; by default, Python shows a text once per
    line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    name_cells()
    warnings.warn(text, kind, stacklevel=level)


def warn_at(
    text: str, kind: type[Warning], file: str, line: int, registry: dict[Any, Any] | None = None
) -> None:
    """Warn at a line of a file. By default, Python shows a text once per `registry` and line."""
    name_cells()
    warnings.warn_explicit(text, kind, file, line, registry=registry)


def name_cells() -> None:
    """In IPython, make warnings of vkchi name the cell in place of its temporary file."""
    if "IPython" in sys.modules:
        from vkchi import tracebacks  # needed only for messages

        tracebacks.name_cells_in_warnings()


_SHOWN: dict[Any, Any] = {}  # registry for `warnings.warn_explicit`


class LineText(str):
    """Text of a warning that equals all texts of the same `line`.

    Python then shows one of them per line, even if numbers in them differ, unless the filter is
    "always".
    """

    __slots__ = ("line",)
    line: str

    def __eq__(self, other: object) -> bool:
        return self.line == other.line if isinstance(other, LineText) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.line)


def warn_line(text: str, kind: type[Warning], span: Span | None = None) -> None:
    """Warn at the line of `span`, or at the user's current line.

    By default, Python shows one warning per kind and line.
    """
    span = span or user_span()
    file, line = (span.file, span.line) if span is not None else ("<unknown>", 0)
    source = line_of(file, line)
    told = LineText(text)
    told.line = f"{file}:{line}: {source}" if source else text
    warn_at(told, kind, file, line, _SHOWN)


class Unsupported(VkchiError, NotImplementedError):
    """Error: a feature that vkchi does not have, or not on this machine.

    The message names an alternative if there is one.
    """


class InternalError(VkchiError):
    """Error: a violated invariant of vkchi, always a bug."""

    hides_frames = False


class InvalidIR(InternalError):
    """Error: IR that violates a rule of `ir.verify`. `finding` names the rule and the location.

    The message asks for a report.
    """

    def __init__(self, finding: str) -> None:
        self.finding = finding
        super().__init__(f"{finding}; this is a bug in vkchi, please report it")


def render_error(error: CompilationError) -> str:
    """The whole message: location, sentence, source line with carets, call chain, notes, help."""
    if error.span is None:
        head = [error.sentence]
    else:
        head = [f"{error.span.place}: {error.sentence}", *render_carets(error.span, error.label)]
        head += render_chain(error.span)
    for sentence, span in error.notes:
        head.append(f"note: {sentence}" if span is None else f"note: {span.place}: {sentence}")
        head += render_carets(span) if span is not None else []
    if error.help:
        head.append(f"help: {error.help}")
    return "\n".join(head)


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The most similar of `names`, for a misspelled name; empty if none is similar."""
    from difflib import get_close_matches  # needed only for messages

    return next(iter(get_close_matches(name, list(names), 1)), "")
