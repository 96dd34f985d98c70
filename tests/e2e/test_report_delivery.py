"""Delivery of reports to Python: from every kind of memory, to several threads, once."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator

import pytest

import vkchi as ti
from vkchi.device import open_device
from vkchi.reports.sites import FAILURE_SLOTS, LINES_AT
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options


@pytest.fixture(params=[False, True], ids=["mapped", "staged"])
def debug(request: pytest.FixtureRequest) -> Iterator[None]:
    """Debug mode, on a device whose memory is the host's and on one whose is not."""
    install_runtime(Runtime(open_device(staged=request.param), Options(debug=True)))
    yield
    ti.init()


def test_lines_and_failures(debug: None, capsys: pytest.CaptureFixture[str]) -> None:
    x = ti.field(ti.i32, shape=10)

    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            print("i", i)
            x[i] = i

    for n in (3, 12, 2):
        if n > 10:
            with pytest.raises(IndexError):
                run(n)
        else:
            run(n)
        assert capsys.readouterr().out == "".join(f"i {i}\n" for i in range(n))
    assert x.to_numpy().tolist() == list(range(10))


def test_the_buffer_is_clean_after_each_launch(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        for i in range(n):
            print(i)
            assert i < 2
        return n + (2**31 - 1)

    with pytest.warns(RuntimeWarning, match="Addition overflow"):
        run(2)
    with pytest.raises(AssertionError):
        run(200)
    buffer = current_runtime().reports.buffer
    assert not any(buffer.read(0, 2048)) and not any(buffer.read(4 * LINES_AT, 4096))


def test_more_failures_than_are_kept(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            assert i < 0

    with pytest.raises(AssertionError, match=f"note: {FAILURE_SLOTS * 10 - 1} other checks failed"):
        run(FAILURE_SLOTS * 10)


def test_threads_get_their_own(debug: None, capsys: pytest.CaptureFixture[str]) -> None:
    @ti.kernel
    def run(k: ti.i32):
        for i in range(3):
            print(k, i)
        assert k != 2

    failed: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            try:
                run(k)
            except AssertionError:
                failed.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [2] * 5
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 60
    for at in range(0, 60, 3):
        k = lines[at][0]
        assert lines[at : at + 3] == [f"{k} {i}" for i in range(3)]


def test_runtimes_that_report_nothing_have_no_buffer(debug: None) -> None:
    x = ti.field(ti.i32, shape=10)
    x.fill(1)

    @ti.kernel
    def run():
        for i in x:
            pass

    run()
    ti.sync()
    assert current_runtime()._reports is None


def test_reset_after_a_failure(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3

    with pytest.raises(AssertionError):
        run(3)
    ti.init(debug=True)
    with pytest.raises(AssertionError):
        run(3)
    run(1)
    ti.reset()
    ti.init()
    run(3)


class Terminal(io.TextIOWrapper):
    """Standard output in an encoding, and the text written to it."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")

    def written(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("ascii", b"gr\\xf6\\xdfe \\u03bb 3\n"),
        ("latin-1", b"gr\xf6\xdfe \\u03bb 3\n"),
        ("utf-8", "größe λ 3\n".encode()),
    ],
)
def test_characters_that_standard_output_has_not_are_escaped(
    encoding: str, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ti.init()

    @ti.kernel
    def tell(n: ti.i32):
        print("größe λ", n)

    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    tell(3)
    assert terminal.written() == line


def test_a_print_that_fails_loses_neither_later_lines_nor_failures(
    debug: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @ti.kernel
    def run(n: ti.i32):
        print("n", n)
        assert n < 3, "n is large"

    closed = io.StringIO()
    closed.close()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", closed)
        with pytest.raises(ValueError, match="standard output takes nothing: I/O operation on clo"):
            run(1)
        with pytest.raises(AssertionError, match="n is large"):
            run(3)
    run(2)
    assert capsys.readouterr().out == "n 2\n"


def test_sites_without_a_flag_report_their_overflow(
    debug: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vkchi.reports.sites.FLAG_WORDS", 1)
    x = ti.field(ti.i32, 40)
    x.fill(2**31 - 1)
    x[3] = 0

    @ti.kernel
    def increment(n: ti.i32):
        for k in ti.static(range(40)):
            x[k] = x[k] + n

    with pytest.warns(RuntimeWarning, match="Addition overflow") as found:
        increment(1)
    assert len(found) == 39  # x[3] does not overflow
    assert x.to_numpy().tolist() == [1 if k == 3 else -(2**31) for k in range(40)]
