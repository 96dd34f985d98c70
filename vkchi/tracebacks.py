"""Tracebacks without vkchi's own frames: the last line shown is usually the user's.

The frames are dropped where an uncaught VkchiError is shown: by `sys.excepthook`, by
`threading.excepthook`, in notebooks and by pytest. `VKCHI_TRACEBACK=full` shows all. The first
VkchiError installs the hooks, which call those that were there before.

Not covered: `traceback.print_exc()` in an `except` block, and errors in destructors and groups.

    tidy(error); error.__traceback__    # frames of the user
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from vkchi.span import PACKAGE, cell_name, place_of_line

STDLIB = os.path.dirname(os.__file__) + os.sep
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
Show = Callable[[Any, Any, Any], Any]


class Hook:
    """A `sys.excepthook` that drops frames of vkchi and calls the hook that was there before.

    A console of the module `code` writes the text itself, as with Python's own hook.
    """

    def __init__(self, then: Show) -> None:
        self.then = then

    def __call__(
        self, kind: type[BaseException], error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if error is not None and not is_full():
            before = error.__traceback__
            tidy(error)
            if error.__traceback__ is not before:
                tb = error.__traceback__
        caller = sys._getframe().f_back  # None: Python itself
        is_python_s = self.then is sys.__excepthook__
        if not (is_python_s and caller is not None and write_to_console(caller, error, tb)):
            self.then(kind, error, tb)


class ThreadHook:
    """A `threading.excepthook`, as `Hook`."""

    def __init__(self, then: Callable[[Any], Any]) -> None:
        self.then = then

    def __call__(self, args: Any) -> None:
        if args.exc_value is not None and not is_full():
            tidy(args.exc_value)
            tb = args.exc_value.__traceback__
            args = type(args)((args.exc_type, args.exc_value, tb, args.thread))
        self.then(args)


def is_full() -> bool:
    """True if `VKCHI_TRACEBACK=full` asks for all frames."""
    return os.environ.get("VKCHI_TRACEBACK") == "full"


def install() -> None:
    """Install the hooks, unless they are. Under pytest, mark vkchi's modules on the stack."""
    if not isinstance(sys.excepthook, Hook):
        sys.excepthook = Hook(sys.excepthook)
    if not isinstance(threading.excepthook, ThreadHook):
        threading.excepthook = ThreadHook(threading.excepthook)
    if "_pytest" in sys.modules:
        mark_frames(sys._getframe(2))
    if "IPython" in sys.modules:
        show_syntax_errors_whole()


def show_by(function: Show) -> None:
    """Make `function` print uncaught errors in place of Python, unless the user has replaced the
    hook."""
    hook = sys.excepthook
    if isinstance(hook, Hook):
        if hook.then is sys.__excepthook__:
            hook.then = function
    elif hook is sys.__excepthook__:
        sys.excepthook = function


def write_to_console(
    caller: FrameType, error: BaseException | None, tb: TracebackType | None
) -> bool:
    """Write an error to the `code.InteractiveInterpreter` that called a hook from the frame
    `caller`, without frames of the console; False if no console did."""
    console = sys.modules.get("code")
    shell = caller.f_locals.get("self")
    if console is None or error is None or caller.f_globals is not vars(console):
        return False
    if not isinstance(shell, console.InteractiveInterpreter):
        return False
    from traceback import format_exception

    while tb is not None and tb.tb_frame.f_globals.get("__name__") in ("code", "codeop"):
        tb = tb.tb_next
    shell.write("".join(format_exception(type(error), error, tb)))
    return True


def tidy(error: BaseException) -> None:
    """Drop vkchi's frames from the traceback of a VkchiError, and of those in its chain, in place.

    An error that vkchi caught itself is no longer shown as the context. The note with the calling
    line is removed if the traceback ends at that line.
    """
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        e = todo.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        todo += [e.__cause__, e.__context__]
        if not getattr(type(e), "hides_frames", False):
            continue
        e.__traceback__ = without_own_frames(e.__traceback__)
        if e.__context__ is not None and is_all_own(e.__context__.__traceback__):
            e.__suppress_context__ = True
        drop_place(e)


def drop_place(error: BaseException) -> None:
    note, span = getattr(error, "place_note", ""), getattr(error, "span", None)
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    if tb is None or span is None or note not in getattr(error, "__notes__", ()):
        return
    if (tb.tb_frame.f_code.co_filename, tb.tb_lineno) == (span.file, span.line):
        error.__notes__.remove(note)


def without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of vkchi, and of Python's library called by these.

    Returns `tb` itself if no frame or every frame would be dropped.
    """
    kept: list[TracebackType] = []
    step, is_inside, count = tb, False, 0
    while step is not None:
        count += 1
        file = step.tb_frame.f_code.co_filename
        is_inside = file.startswith(PACKAGE) or (is_inside and is_of_python(file))
        if not is_inside:
            kept.append(step)
        step = step.tb_next
    if len(kept) in (0, count):
        return tb
    made: TracebackType | None = None
    for step in reversed(kept):
        made = TracebackType(made, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return made


def is_of_python(file: str) -> bool:
    """True for files of Python's standard library and frozen modules."""
    if file.startswith("<frozen"):
        return True
    return file.startswith(STDLIB) and not any(folder in file for folder in INSTALLED)


def is_all_own(tb: TracebackType | None) -> bool:
    """True if the traceback begins in vkchi, and its frames are in vkchi or Python's library."""
    if tb is None or not tb.tb_frame.f_code.co_filename.startswith(PACKAGE):
        return False
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if not (file.startswith(PACKAGE) or is_of_python(file)):
            return False
        tb = tb.tb_next
    return True


# --- pytest and notebooks ------------------------------------------------------------------------


def mark_frames(frame: FrameType | None) -> None:
    """Set `__tracebackhide__`, which pytest reads, in vkchi's modules at the top of the stack."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame.f_globals.setdefault("__tracebackhide__", is_hidden)
        frame = frame.f_back


def is_hidden(info: Any) -> bool:
    """True if pytest hides vkchi's frames in the traceback of this ExceptionInfo."""
    return getattr(type(info.value), "hides_frames", False) and not is_full()


def show_syntax_errors_whole() -> None:
    """Make IPython show a SyntaxError of vkchi by `render_in_notebook`, as other errors.

    IPython has a method for SyntaxError, which shows neither the cell nor the message's place.
    """
    shell: Any = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    before = getattr(shell, "showsyntaxerror", None)
    if before is None or getattr(before, "is_of_vkchi", False):
        return

    def showsyntaxerror(*args: Any, **options: Any) -> None:
        kind, error, _ = shell._get_exc_info()
        if hasattr(kind, "hides_frames"):
            shell._showtraceback(kind, error, error._render_traceback_())
        else:
            before(*args, **options)

    showsyntaxerror.is_of_vkchi = True  # type: ignore[attr-defined]
    shell.showsyntaxerror = showsyntaxerror


class WarningFormat:
    """A `warnings.formatwarning` that names the notebook cell of vkchi's warnings in place of its
    temporary file."""

    def __init__(self, then: Callable[..., str]) -> None:
        self.then = then

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        text = self.then(message, category, filename, lineno, line)
        if category.__module__.partition(".")[0] == __package__ and cell_name(filename):
            place = f"{filename}:{lineno}:"
            text = text.replace(place, f"{place_of_line(filename, lineno)}:", 1)
        return text


def name_cells_in_warnings() -> None:
    """Install a WarningFormat in IPython, unless it is installed."""
    if "IPython" in sys.modules and not isinstance(warnings.formatwarning, WarningFormat):
        warnings.formatwarning = WarningFormat(warnings.formatwarning)


def render_in_notebook(error: BaseException) -> list[str]:
    """Lines of the traceback in IPython, without vkchi's frames unless all are wanted (`is_full`).

    Raises KeyError or AttributeError outside of IPython.
    """
    shell = sys.modules["IPython"].get_ipython()
    if not is_full():
        tidy(error)
    lines: list[str] = shell.InteractiveTB.structured_traceback(
        type(error), error, error.__traceback__
    )
    return lines
