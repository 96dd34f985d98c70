"""Progress bar on stderr, if that is a terminal.

    for k in track(range(100), "training"):
        ...

    with Bar("gradients", total=12) as bar:
        bar.advance()

Nothing is shown in the first second. Of nested bars only the outermost is shown. The bar is drawn
by tqdm, imported on demand; without tqdm it is a line of text. Calls of `advance` draw it, at most
ten times a second.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import ClassVar, TypeVar

from vkchi import platform
from vkchi.interrupts.local import local, suppress

T = TypeVar("T")
PATIENCE_S, PAUSE_S = 1.0, 0.1
Draw = Callable[[int], str]  # number of finished steps -> line


class Bar:
    """Context manager that shows a progress bar titled `what`. `total`: number of steps or None."""

    _outermost: ClassVar[Callable[[], Bar | None]] = lambda: None

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total, self.done = what, total, 0
        self._next_s = float("inf")  # time of the next redraw
        self._draw: Draw | None = None

    def __enter__(self) -> Bar:
        if Bar._outermost() is None and is_terminal():
            Bar._outermost = weakref.ref(self)
            self._next_s = time.monotonic() + PATIENCE_S
        return self

    def advance(self, count: int = 1) -> None:
        """Add `count` finished steps, and redraw the bar if it is due."""
        self.done += count
        if time.monotonic() >= self._next_s:
            self._draw = self._draw or choose_renderer(self.what, self.total)
            write(platform.clearing(sys.stderr) + self._draw(self.done))
            self._next_s = time.monotonic() + PAUSE_S

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        self._next_s = float("inf")
        if Bar._outermost() is self:
            Bar._outermost = lambda: None
        if self._draw is not None:
            write(platform.clearing(sys.stderr))


def track(steps: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Iterate over the steps with a progress bar.

    `total`: the number of steps, for iterables without a length.
    """
    with Bar(what, len(steps) if isinstance(steps, Sized) else total) as bar:
        for step in steps:
            yield step
            bar.advance()


def is_terminal() -> bool:
    """True if stderr is a terminal that can redraw a line."""
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except local(AttributeError, ValueError):  # no stderr, or closed
        return False


def write(text: str) -> None:
    """Write to stderr; errors of a missing or closed stderr are ignored."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except local(AttributeError, OSError, ValueError):
        pass


def choose_renderer(what: str, total: int | None) -> Draw:
    """Return the function that renders the bar: by tqdm, else as plain text.

    Plain text if tqdm is not installed, and on consoles without escape sequences.
    """
    if platform.takes_escapes(sys.stderr):
        with suppress(ImportError):
            return drawn_by_tqdm(what, total)
    of = "" if total is None else f" of {total}"
    return lambda done: f"{what}: {done}{of}"


def drawn_by_tqdm(what: str, total: int | None) -> Draw:
    """A function that renders a bar of tqdm as one line. Raises ImportError."""
    import shutil  # slow: imports compression modules

    from tqdm import tqdm

    begin_s = time.monotonic()
    columns = shutil.get_terminal_size().columns - 1
    encoding = str(getattr(sys.stderr, "encoding", None) or "")
    is_ascii = not encoding.lower().startswith("utf")

    def draw(done: int) -> str:
        elapsed_s = time.monotonic() - begin_s
        return str(
            tqdm.format_meter(
                done, total, elapsed_s, ncols=columns, prefix=what, ascii=is_ascii, unit=""
            )
        )

    return draw
