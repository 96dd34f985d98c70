"""Cached facts about kernels: kept answers, limits, time of writing."""

from __future__ import annotations

from typing import Any

import pytest

from vkchi.cache import query_cache
from vkchi.cache.codec import encode
from vkchi.cache.compiled import CacheLocation
from vkchi.cache.query_cache import Answers, key_of, table_in
from vkchi.cache.store import CacheStore
from vkchi.errors import CacheWarning
from vkchi.span import Span
from vkchi.types import Array, f32

HEADER = {"name": "run", "place": "run.py:1", "signature": "", "device": "", "version": "v",
          "parts": {"kind": "kernel"}}  # fmt: skip


@pytest.fixture
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> CacheLocation:
    monkeypatch.setattr(query_cache, "is_changed", lambda: False)
    return CacheLocation(CacheStore(str(tmp_path)), "0" * 64, HEADER, [("run.py", 10, (0, 1, 2))])


def kept(home: CacheLocation) -> Any:
    entry = home.shelf.peek(key_of(home))
    assert entry is not None
    return table_in(entry[1])


def never() -> Any:
    raise AssertionError("asked again")


def test_answers_last(home):
    here = Answers(home)
    spans = {"x": Span("run.py", 11, 1, 12, 9), "y": None}
    questions: list[tuple[tuple[Any, ...], str, Any]] = [
        (("names", frozenset("ba"), Array.of(f32, 1)), "Names", frozenset("xy")),
        (("names", frozenset("a"), None), "Names | None", None),
        (("spans",), "Spans", spans),
        (("box", (1, 2)), "Box", ((0, 3), None)),
    ]
    for question, form, answer in questions:
        assert here.find(question, form, lambda answer=answer: answer) == answer
    assert here.find(("spans",), "Spans", never) == spans
    here.save()
    there = Answers(home._replace(places=[("moved.py", 30, (0, 5, 6))]))
    for question, form, answer in questions[:2] + questions[3:]:
        assert there.find(question, form, never) == answer
    assert there.find(("spans",), "Spans", never)["x"] == Span("moved.py", 35, 1, 36, 9)


@pytest.mark.parametrize(
    "data", [encode("text", "str"), encode(frozenset("x"), "Names")[:-1], b"", b"more"]
)
def test_answers_of_other_types_are_none(home, data):
    first = Answers(home)
    first.find(("names",), "Names", lambda: frozenset("x"))
    first.save()
    table = kept(home)
    table.kernel.update(dict.fromkeys(table.kernel, data))
    home.shelf.put(key_of(home), query_cache.header_of(home), encode(table, "Table"))
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert Answers(home).find(("names",), "Names", lambda: frozenset("y")) == frozenset("y")


def test_an_answer_that_has_no_form_is_kept_in_memory(home):
    here = Answers(home)
    assert here.find(("odd",), "Names", lambda: {"x": object()})
    assert here.find(("odd",), "Names", never)
    here.find(("names",), "Names", lambda: frozenset("x"))
    here.save()
    assert len(kept(home).kernel) == 1


def test_calls_leave_room_for_queries_of_the_kernel(home, monkeypatch):
    monkeypatch.setattr(query_cache, "MOST_OF_CALLS", 5)
    here = Answers(home)
    for k in range(9):
        here.find(("box", k), "Box", lambda: (), is_of_call=True)
    here.save()
    here.find(("names",), "Names", lambda: frozenset("x"))
    here.save()
    assert len(kept(home).calls) == 5 and len(kept(home).kernel) == 1
    other = Answers(home)
    other.find(("box", 77), "Box", lambda: (), is_of_call=True)
    other.save()
    assert len(kept(home).calls) == 5


def test_concurrent_writes_are_merged(home):
    here, there = Answers(home), Answers(home)
    for k, one in enumerate((here, there)):
        one.find(("names", k), "Names", lambda: frozenset("x"))
        one.save()
    assert len(kept(home).kernel) == 2


def test_writing_takes_a_small_part_of_the_time(home, monkeypatch):
    """However many answers there are, each of which takes a while to find."""
    time, writes = [0.0], []
    monkeypatch.setattr(query_cache, "perf_counter", lambda: time[0])

    def put(self: CacheStore, *args: Any) -> bool:
        time[0] += 0.001 * len(args[2])  # 1 ms for each byte
        writes.append(time[0])
        return True

    monkeypatch.setattr(CacheStore, "put", put)
    here, found = Answers(home), 0.0

    def find() -> Any:
        time[0] += 0.02
        return frozenset("x")

    for k in range(500):
        here.find(("names", k), "Names", find)
        found += 0.02
    assert writes, "some are written before the end"
    assert time[0] - found < 0.3 * found
