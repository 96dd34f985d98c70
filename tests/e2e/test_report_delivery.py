"""How reports come to Python: from every kind of memory, to several threads, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import vkchi as ti
from vkchi.device import open_device
from vkchi.options import Options
from vkchi.runtime import Runtime, current, install
from vkchi.sites import FAILURE_SLOTS, LINES_AT


@pytest.fixture(params=[False, True], ids=["mapped", "staged"])
def debug(request: pytest.FixtureRequest) -> Iterator[None]:
    """Debug mode, on a device whose memory is the host's and on one whose is not."""
    install(Runtime(open_device(staged=request.param), Options(debug=True)))
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
    buffer = current().reports.buffer
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
    assert current()._reports is None


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
