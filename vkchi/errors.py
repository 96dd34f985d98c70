"""Every exception class a user can meet, and the one place that renders a compile error.

Owns: the classes (their Taichi names are aliases made in `vkchi/__init__.py`), the message form of
docs/design.md part 8, and what name was meant. Must not know: the frontend, the IR.

    raise KernelTypeError("operands of `+` have different shapes", span, label="f32 and u1")
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from vkchi.span import PACKAGE, Span, is_ours, line_of, render_carets, render_chain, user_span


class VkchiError(Exception):
    """Base of everything vkchi raises on purpose."""


class CompilationError(VkchiError):
    """A kernel is wrong. Knows the user's line.

    `sentence` says what is wrong, `label` stands beside the carets, `notes` are (sentence, span)
    pairs saying where a fact came from, `help` is something to type. In place of a line of a kernel
    of our own, as copies are, the user's line that Python stands at is shown.
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
    """Python syntax that kernels do not have, or a use of it that they do not allow."""

    def __init__(self, sentence: str, span: Span | None = None, **facts: object) -> None:
        CompilationError.__init__(self, sentence, span, **facts)  # type: ignore[arg-type]
        self.msg = self.args[0]

    def __str__(self) -> str:
        return str(self.args[0])


class KernelTypeError(CompilationError, TypeError):
    """Values of the wrong type or shape inside a kernel."""


class KernelValueError(KernelTypeError, ValueError):
    """A value inside a kernel, known while compiling, that is not allowed where it stands."""


class KernelNameError(CompilationError, NameError):
    """A name that is not defined where the kernel uses it."""


class KernelShapeError(KernelTypeError, ValueError):
    """Shapes that do not go together, in Python scope, where numpy raises ValueError."""


class KernelCallError(KernelSyntaxError, KernelTypeError):
    """A kernel calls a function with other arguments than it has; a TypeError for Python, a
    SyntaxError for Taichi."""


class IndexingError(VkchiError, IndexError):
    """A wrong number of indices, or an index out of range: in a kernel or in Python."""


class KernelIndexError(CompilationError, IndexingError):
    """A wrong number of indices, or a static index out of range, in a kernel."""


class KernelIndexTypeError(KernelIndexError, KernelTypeError):
    """An index that is no integer."""


class GradientError(CompilationError):
    """A gradient that cannot be right: of an operation that has none, or of memory that is gone."""


class KernelRuntimeError(VkchiError, RuntimeError):
    """Something went wrong while running: device, memory, driver, a call in the wrong state."""


class ModuleError(KernelRuntimeError, ValueError):
    """A saved module cannot be used: it is damaged, or of another version."""


class KernelFieldError(CompilationError, KernelRuntimeError):
    """A kernel uses a field that has no memory: it was not placed, or was destroyed."""


class DeviceError(KernelRuntimeError):
    """No driver, no device, a feature that the device lacks, out of memory, device lost."""


class ArrayIndexError(KernelRuntimeError, IndexingError):
    """An array was indexed from Python with the wrong number of indices, or out of range."""


class ArrayIndexCountError(CompilationError, ArrayIndexError, AssertionError):
    """An array was indexed from Python with the wrong number of indices; an IndexError for Python,
    an AssertionError for Taichi's fields, a compilation error for its ndarrays."""


class ArrayIndexTypeError(ArrayIndexError, TypeError):
    """An array was indexed from Python with something that is no integer."""


class ArgumentError(KernelRuntimeError, TypeError, ValueError):
    """A kernel or an array method was called with something it does not take: a TypeError or
    ValueError for Taichi, as it comes. `span` is the user's line that called, which Python 3.11 and
    later show below the message, for the traceback ends in our own code."""

    span: Span | None = None

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)
        if self.span is None:
            self.span = user_span()
        if self.span is not None and hasattr(self, "add_note"):
            self.add_note("\n".join([f"called at {self.span.place}", *render_carets(self.span)]))


class DeclarationError(ArgumentError, KernelSyntaxError):
    """A field is declared in a way that there is not; a SyntaxError for Taichi."""


class OptionError(ArgumentError, AttributeError):
    """`ti.cfg` has no such option, or none that can be assigned."""


class UnknownOptionError(ArgumentError, KeyError):
    """`ti.init` was given an option that there is not."""

    def __str__(self) -> str:
        return str(self.args[0])


class ArgumentShapeError(ArgumentError, IndexError):
    """An element was given another number of values than it has."""


class ArgumentListError(ArgumentError, KernelSyntaxError):
    """A kernel was called with too few, too many or unknown arguments; a TypeError for Python, a
    SyntaxError for Taichi."""


class NotIterableError(ArgumentError, NotImplementedError):
    """An array was iterated in Python; a TypeError for Python, NotImplementedError for Taichi."""


class ToolError(ArgumentError, ValueError, AssertionError):
    """A function of ti.tools was given what it cannot read or write; Taichi's raise ValueError or
    AssertionError there."""


class MissingPackageError(KernelRuntimeError, ImportError):
    """Something needs a package that is not installed; the message says which extra has it."""


class KernelAssertionError(KernelRuntimeError, AssertionError):
    """An `assert` inside a kernel failed, or a check of debug mode."""


class VerifyError(KernelAssertionError):
    """A device does not do what the reference interpreter does."""


class DataAccessError(GradientError, KernelAssertionError):
    """A kernel breaks one of Taichi's data-access rules, in a tape that was asked to find that; an
    AssertionError for Taichi."""


class KernelBoundsError(KernelAssertionError, ArrayIndexError):
    """An index out of range: of an array in Python; in debug mode, of an array, a vector or a
    matrix in a kernel."""


class KernelDivisionError(KernelAssertionError, ZeroDivisionError):
    """Debug mode: a kernel divided an integer by zero."""


class TensorGradientError(GradientError, KernelRuntimeError):
    """Torch is asked for the derivative of what a kernel wrote; a RuntimeError, as torch's own."""


class KernelRangeError(KernelAssertionError, ValueError):
    """Debug mode: the range of a loop has a step of 0, or more indices than can be counted."""


class CacheWarning(UserWarning):
    """The cache of compiled shaders cannot be used, or something in it is damaged."""


class KernelOverflowWarning(RuntimeWarning):
    """An integer went beyond its type and wrapped: an argument of a kernel, or in debug mode a
    result of arithmetic."""


class KernelRaceWarning(RuntimeWarning):
    """The result of a kernel depends on the order of its iterations: they provably conflict, or, in
    debug mode, did so in a launch."""


class RecompilationWarning(RuntimeWarning):
    """A kernel is compiled again and again, for a value of Python that changes."""


class ConversionWarning(RuntimeWarning):
    """A conversion that nobody wrote loses numbers: a fraction in an integer, what a narrower type
    does not hold. `ti.init(strict=True)` makes it an error."""


class ConstantWarning(RuntimeWarning):
    """A kernel calls what gives another result each time (`random.random()`, `time.time()`) at
    compile time, once. `ti.init(strict=True)` makes it an error."""


class UnrollWarning(RuntimeWarning):
    """A loop is unrolled to so many operations that compiling it takes long."""


class SubgroupWarning(RuntimeWarning):
    """An exchange between invocations goes beyond any subgroup of the device."""


class GradientWarning(RuntimeWarning):
    """`kernel.grad(...)` does nothing, for nothing that the kernel writes has a gradient; or it is
    not known whether a gradient is right."""


class SolverWarning(RuntimeWarning):
    """A solver's result is no solution: its residual is too large."""


def warn_user(text: str, kind: type[Warning]) -> None:
    """Warn at the innermost line that is not of this package; Python shows one for each line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


_SHOWN: dict[Any, Any] = {}  # the registry of Python's warnings


class LineText(str):
    """The text of a warning, equal to every other of the same `line`: of those Python shows one,
    whatever the numbers in it are, and each as it is where the filter says "always"."""

    __slots__ = ("line",)
    line: str

    def __eq__(self, other: object) -> bool:
        return self.line == other.line if isinstance(other, LineText) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.line)


def warn_line(text: str, kind: type[Warning], span: Span | None = None) -> None:
    """Warn at a line, that of `span` or where the user's code is; by default Python shows one of
    its kind."""
    span = span or user_span()
    file, line = (span.file, span.line) if span is not None else ("<unknown>", 0)
    source = line_of(file, line)
    told = LineText(text)
    told.line = f"{file}:{line}: {source}" if source else text
    warnings.warn_explicit(told, kind, file, line, registry=_SHOWN)


class Unsupported(VkchiError, NotImplementedError):
    """A documented feature that vkchi does not have (yet); the message says what to use instead."""


class InternalError(VkchiError):
    """vkchi broke its own contract; always a bug of ours. The message asks for a report."""


class InvalidIR(InternalError):
    """IR breaks a rule of `ir.verify`. `finding` says which and where, for IR that a user wrote."""

    def __init__(self, finding: str) -> None:
        self.finding = finding
        super().__init__(f"{finding}; this is a bug in vkchi, please report it")


def render_error(error: CompilationError) -> str:
    """The whole message: place, sentence, source line with carets, call chain, notes, help."""
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


def nearest(name: str, names: Iterable[str]) -> str:
    """The one of `names` that is most like a name that is none of them; empty if none is."""
    from difflib import get_close_matches  # only for messages

    return next(iter(get_close_matches(name, list(names), 1)), "")
