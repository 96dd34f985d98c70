"""Progress of long work: on terminals only, after a second, and drawn by any worker."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from vkchi import progress
from vkchi.platform import clearing
from vkchi.progress import Bar, track

CLEAR = clearing(None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr, a terminal on which bars are drawn at once and always."""
    there = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=there))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "PAUSE_S", 0.0)
    return there


def lines(text: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.split(CLEAR)]


@pytest.mark.parametrize("is_tqdm", [True, False])
def test_a_bar_counts_and_goes(is_tqdm: bool, terminal: Terminal, monkeypatch) -> None:
    if is_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(track([10, 20, 30], "training")) == [10, 20, 30]
    first, *shown, last = lines(terminal.getvalue())
    assert first == last == "" and len(shown) == 3
    for k, line in enumerate(shown, start=1):
        assert line.startswith("training") and re.search(rf"\b{k}( of |/)3\b", line), line
    assert "\n" not in terminal.getvalue()


def test_of_bars_one_inside_another_the_outermost_is_seen(terminal: Terminal) -> None:
    with Bar("outer") as outer:
        for _ in track(range(5), "inner"):
            pass
        outer.advance()
    with Bar("next") as after:
        after.advance(7)
    said = terminal.getvalue()
    assert "outer" in said and "inner" not in said and re.search(r"next\D+7", said)


def test_an_error_takes_the_bar_away(terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), Bar("work", 3) as bar:
        bar.advance()
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith(CLEAR)
    abandoned = track(range(3), "work")
    next(abandoned), next(abandoned)
    del abandoned
    with Bar("next") as bar:
        bar.advance()
    assert "next" in terminal.getvalue()


def test_no_bar_within_the_first_second(terminal: Terminal, monkeypatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 1000.0)
    list(track(range(3), "work"))
    assert terminal.getvalue() == ""


def test_no_bar_or_tqdm_without_a_terminal() -> None:
    code = (
        "import sys, vkchi.progress as p; p.PATIENCE_S = p.PAUSE_S = 0; n = len(sys.modules)\n"
        "list(p.track(range(3), 'work')); print(len(sys.modules) - n, 'tqdm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 False\n", "")


def test_no_bar_on_a_dumb_terminal(terminal: Terminal, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    list(track(range(3), "work"))
    assert terminal.getvalue() == ""


def test_a_terminal_without_colours_and_with_few_characters(monkeypatch) -> None:
    pytest.importorskip("tqdm")
    there = SimpleNamespace(encoding="ascii")
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=there))
    line = progress.drawn_by_tqdm("work", 3)(2)
    assert line.isascii() and "2/3" in line and "\x1b" not in line


@pytest.mark.parametrize("stderr", ["none", "closed", "broken"])
def test_a_stderr_that_is_gone(stderr: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there: Terminal | None = None if stderr == "none" else Terminal()
    if there and stderr == "closed":
        there.close()
    if there and stderr == "broken":
        monkeypatch.setattr(there, "write", _broken)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=there))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert list(track(range(2), "work")) == [0, 1]


def _broken(text: str) -> None:
    raise BrokenPipeError


def test_no_thread_is_begun(terminal: Terminal) -> None:
    before = threading.active_count()
    for _ in track(range(2), "work"):
        assert threading.active_count() <= before  # threads of other tests may end
