"""What the user's Python raises while the compiler calls it: `ti.static(f())`, properties,
operators, iterators, formats of objects that a kernel reads while compiling.

Owns: telling such errors from our own, and the compile error that they become, whose `__cause__`
is the user's exception with its own traceback. Must not know: who called.

    ti_program.py:9:18: f() raised ValueError while compiling: no such material
    note: ti_program.py:4:5: raised here
"""

from __future__ import annotations

from types import TracebackType

from vkchi.errors import CompilationError, KernelTypeError
from vkchi.frontend.values import Context
from vkchi.span import PACKAGE, Span, span_in

_SITE = ("site-packages", "dist-packages")


def foreign_traceback(error: BaseException) -> TracebackType | None:
    """The part of the traceback that begins outside this package; None if no such code ran."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(PACKAGE):
        tb = tb.tb_next
    return tb


def blame(cx: Context, error: Exception, called: str = "") -> CompilationError:
    """The error to raise at the current expression for what `called()` (by default: the first
    function that is not ours) raised; its cause is `error`."""
    tb = foreign_traceback(error)
    if isinstance(error, CompilationError) and error.span is None:
        return cx.fail(error.sentence, kind=type(error), label=error.label, help=error.help)
    notes: tuple[tuple[str, Span | None], ...] = ()
    if tb is not None:
        called = called or tb.tb_frame.f_code.co_name
        notes = (("raised here", _place(tb)),)
    what = f": {error}" if str(error) else ""
    failed = cx.fail(
        f"{called}() raised {type(error).__name__} at compile time{what}",
        kind=KernelTypeError,
        notes=notes,
    )
    failed.__cause__ = error.with_traceback(tb)
    return failed


def _place(tb: TracebackType) -> Span:
    """The innermost line of the user's own files; of any, where none of them is."""
    found = tb
    step: TracebackType | None = tb
    while step is not None:
        if not _is_library(step.tb_frame.f_code.co_filename):
            found = step
        step = step.tb_next
    return span_in(found.tb_frame.f_code, found.tb_lasti, found.tb_lineno)


def _is_library(file: str) -> bool:
    if file.startswith(PACKAGE) or any(folder in file for folder in _SITE):
        return True
    import sysconfig  # only for messages

    paths = sysconfig.get_paths()
    return file.startswith((paths["stdlib"], paths["platstdlib"], "<frozen"))
