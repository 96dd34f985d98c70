"""Errors from user code that the compiler calls, converted to compile errors.

Such code runs for `ti.static(f())`, and for properties, operators, iterators and formats of objects
that a kernel reads at compile time. The compile error's `__cause__` is the user's exception with
its own traceback. A note names the line that raised:

    note: ti_program.py:4:5: raised here
"""

from __future__ import annotations

from types import TracebackType

from vkchi.errors import CompilationError, KernelTypeError
from vkchi.frontend.values.references import Context
from vkchi.span import PACKAGE, Span, span_in

_SITE = ("site-packages", "dist-packages")


def foreign_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame outside this package; None if there is none."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(PACKAGE):
        tb = tb.tb_next
    return tb


def access_error(cx: Context, name: str) -> CompilationError:
    """Return the error for a function, property or operator that accesses elements of an array at
    compile time."""
    return cx.fail(
        f"`{name}` accesses elements of an array, at compile time",
        kind=KernelTypeError,
        help="access them in the kernel itself, or in a function that it calls",
    )


def user_code_error(cx: Context, error: Exception, called: str = "") -> CompilationError:
    """Return the compile error for an exception of `called()`; its cause is `error`.

    By default, `called` is the first function outside this package. A CompilationError without a
    span only gets the current one.
    """
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
    """Return the span of the innermost line in the user's own files; otherwise in any file."""
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
