"""Exceptions of signal handlers and trace functions pass every `except` clause of vkchi."""

from __future__ import annotations

import ast
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vkchi.interrupts.local import is_file, local, make_folders, suppress

ROOT = Path(__file__).parents[2]
BROAD = {
    "OSError", "FileNotFoundError", "FileExistsError", "Exception", "RuntimeError", "ValueError"
}  # fmt: skip
COMMANDS = ("__main__.py", "local.py")


def files() -> Iterator[Path]:
    """The modules that run in users' programs; commands are programs of their own."""
    for path in sorted((ROOT / "vkchi").rglob("*.py")):
        if path.parent.name != "cli" and path.name not in COMMANDS:
            yield path


def test_broad_classes_are_caught_through_the_filter() -> None:
    wrong = []
    for path in files():
        text = path.read_text(encoding="utf-8")
        takes = "from contextlib import suppress" in text
        for node in ast.walk(ast.parse(text)):
            kinds: list[ast.expr] = []
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            elif takes and isinstance(node, ast.Call) and ast.unparse(node.func) == "suppress":
                kinds = node.args
            if BROAD & {ast.unparse(kind) for kind in kinds}:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    allowed = ("vkchi/interrupts/",)  # other threads, and the interpreter's end
    found = [place for place in wrong if not place.startswith(allowed)]
    assert found == [], "write `except local(...)`, or `suppress`, of vkchi.interrupts.local"


def test_functions_of_os_that_discard_exceptions_are_not_called() -> None:
    """`os.makedirs` and `os.path.isfile` catch every OSError, a handler's TimeoutError too."""
    discarding = {"os.makedirs", "os.path.exists", "os.path.isfile", "os.path.isdir"}
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in discarding
    }
    aside = ("vkchi/aot/", "vkchi/cache/inspection/", "vkchi/tools/", "vkchi/gui/", "vkchi/ui/")
    assert {place for place in found if not place.startswith(aside)} == set()


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    make_folders(str(path), 0o700)
    make_folders(str(path))
    assert path.is_dir() and path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(NotADirectoryError):
        make_folders(str(tmp_path / "file" / "d" / "e"))
    with pytest.raises(FileNotFoundError):
        make_folders("")
    assert is_file(str(tmp_path / "file")) and not is_file(str(path)) and not is_file("a\0b")


class Watch:
    """Handlers of several forms."""

    def method(self, number: int, frame: Any) -> None:
        raise TimeoutError

    def __call__(self, *given: Any) -> None:
        self.deeper()

    def deeper(self) -> None:
        raise TimeoutError


def plain(number: int, frame: Any) -> None:
    raise TimeoutError


def bound(text: str, number: int, frame: Any) -> None:
    raise TimeoutError(text)


HANDLERS = [plain, Watch().method, Watch(), partial(bound, "late"), lambda n, f: plain(n, f)]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
@pytest.mark.parametrize("handler", HANDLERS, ids=range(len(HANDLERS)))
@pytest.mark.parametrize("form", ["clause", "suppress"])
def test_signal_handler_exceptions_propagate(handler: Any, form: str) -> None:
    def guarded() -> None:
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError):
            if form == "suppress":
                with suppress(OSError):
                    guarded()
            else:
                try:
                    guarded()
                except local(OSError):
                    pass
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_trace_function_exceptions_propagate() -> None:
    def guarded() -> int:
        return 1

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is guarded.__code__:
            raise TimeoutError
        return trace

    before = sys.gettrace()
    with pytest.raises(TimeoutError):
        sys.settrace(trace)
        try:
            guarded()
        except local(OSError):
            pass
        finally:
            sys.settrace(before)


def test_errors_of_guarded_code_are_caught() -> None:
    def fails(value: object = None, *rest: object) -> None:
        raise TimeoutError

    for given in ((), (1, 2), (fails, {})):
        with suppress(OSError):
            fails(*given)
        try:
            fails(*given)
        except local(KeyError, OSError) as e:
            assert type(e) is TimeoutError
