"""Memoization of analyses of a kernel, in memory and on disk. Reading a stored result does not load
the IR.

A question is a tuple of plain values. An answer is any value. An answer that `codec` cannot encode
is memoized in memory only. Spans are stored relative to functions, as in the kernel's own entry.

New answers are written at exit, and once finding them took over SLOW_S and over ten times the
duration of the last write. Writing merges them with the answers that other processes wrote.

    answers.find(("gradient", frozenset({"x"})), "CompiledGradient", make)
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from vkchi.autodiff.results import (
    CompiledGradient,
    DerivativeOutflow,
    FlowTargets,
    ForwardKernel,
    MarkedOp,
    MarkingKernel,
    SaveBufferSize,
)
from vkchi.cache.codec import Malformed, add_records, decode, encode
from vkchi.cache.compiled import CacheLocation, Places
from vkchi.cache.content import remove_unreadable
from vkchi.cache.kernel_survey import NoDigestError
from vkchi.cache.manifest import absolute, relative
from vkchi.cache.store import digest
from vkchi.cache.version import is_changed
from vkchi.interrupts.local import local
from vkchi.interrupts.weak import insert_bounded
from vkchi.target.artifact import Artifact
from vkchi.tuples import NamedTuple
from vkchi.types import Type

Question = tuple[Any, ...]
SLOW_S = 0.01
WRITING_SHARE = 0.1  # most of the time for finding that writing may take, except at exit
MOST_KNOWN = 10_000  # answers per kernel in memory
MOST_OF_CALLS = 1_000  # answers per kernel on disk about calls; they depend on scalars
MOST_OF_KERNEL = 1_000  # other answers on disk: some per set of arrays with gradients


class EncodedQuestion(NamedTuple):
    """A question as JSON, the codec form of its answer, and a flag for questions about one call."""

    text: str
    form: str
    is_of_call: bool


class Table(NamedTuple):
    """Encoded answers by question text, about the kernel and about calls."""

    kernel: dict[str, bytes]
    calls: dict[str, bytes]

    def of(self, asked: EncodedQuestion) -> tuple[dict[str, bytes], int]:
        """Return the dict that holds this question's answer, and its capacity on disk."""
        return (self.calls, MOST_OF_CALLS) if asked.is_of_call else (self.kernel, MOST_OF_KERNEL)


add_records(
    ForwardKernel,
    CompiledGradient,
    FlowTargets,
    MarkingKernel,
    MarkedOp,
    DerivativeOutflow,
    SaveBufferSize,
    Table,
)


class Answers:
    """The memo table of one kernel; in memory only if `home` is None."""

    def __init__(self, home: CacheLocation | None = None) -> None:
        self.home = home
        self.known: dict[Question, Any] = {}
        self.kept = read_answers(home)
        self.new: list[tuple[EncodedQuestion, Any]] = []
        self.seconds = 0.0  # spent on finding `new`
        self.seconds_of_writing = 0.0  # of the last write

    def find(
        self, question: Question, form: str, make: Callable[[], Any], *,
        is_of_call: bool = False, is_lasting: bool = True,
    ) -> Any:  # fmt: skip
        """Return the answer to a question from memory, from disk or from `make`, and memoize it.

        - form: the codec form of the answer.
        - is_of_call: the question concerns a call, not the kernel alone.
        - is_lasting: the answer may be stored on disk.

        Exceptions of `make` are not memoized.
        """
        try:
            return self.known[question]
        except KeyError:
            pass
        lasting = self.home is not None and is_lasting
        asked = EncodedQuestion(text_of(form, question), form, is_of_call) if lasting else None
        found = None if asked is None else self._read(asked)
        if found is None:
            began = perf_counter()
            found = (make(),)
            if asked is not None:
                self._note(asked, found[0], perf_counter() - began)
        insert_bounded(self.known, question, found[0], MOST_KNOWN)
        return found[0]

    def _read(self, asked: EncodedQuestion) -> tuple[Any] | None:
        """Return the stored answer as a tuple of one, or None. If it is malformed, remove the
        kernel's entry of answers."""
        data = self.kept.of(asked)[0].get(asked.text)
        if data is None or self.home is None:
            return None
        places = self.home.places
        try:
            return (decode(data, asked.form, span=lambda span: absolute(span, places)),)
        except Malformed as e:
            remove_unreadable(self.home.shelf, key_of(self.home), e)
            self.kept = Table({}, {})
            return None

    def _note(self, asked: EncodedQuestion, answer: Any, seconds: float) -> None:
        """Queue an answer for writing, unless the table is full. Write the queue if `make` took
        long for its answers. `seconds` is the time that `make` took."""
        known, most = self.kept.of(asked)
        if len(known) + sum(a.is_of_call is asked.is_of_call for a, _ in self.new) >= most:
            return
        self.new.append((asked, answer))
        self.seconds += seconds
        UNSAVED[id(self)] = self
        if self.seconds > max(SLOW_S, self.seconds_of_writing / WRITING_SHARE):
            began = perf_counter()
            self.save()
            self.seconds_of_writing = perf_counter() - began

    def save(self) -> None:
        new, self.new, self.seconds = self.new, [], 0.0
        UNSAVED.pop(id(self), None)
        if self.home is None or is_changed():
            return
        theirs = read_answers(self.home)
        merged = Table({**theirs.kernel, **self.kept.kernel}, {**theirs.calls, **self.kept.calls})
        written = [(asked, encode_answer(answer, asked, self.home.places)) for asked, answer in new]
        for asked, data in written:
            known, most = merged.of(asked)
            if data is not None and len(known) < most:
                known[asked.text] = data
        if any(data is not None for _, data in written):
            self.kept = merged
            self.home.shelf.put(key_of(self.home), header_of(self.home), encode(merged, "Table"))


UNSAVED: dict[int, Answers] = {}
OF_KERNEL = ("name", "place", "signature", "device", "version", "parts")  # header fields


def text_of(form: str, question: Question) -> str:
    """Encode a question as JSON, equal in all processes. Raises TypeError."""
    return json.dumps([form, *to_json_value(question)], separators=(",", ":"))


def form_in(text: str) -> str:
    """Return the answer's form from a question's text. Raises Malformed."""
    try:
        return str(json.loads(text)[0])
    except local(ValueError, TypeError, LookupError):
        raise Malformed(f"{text} is no question") from None


def to_json_value(value: Any) -> Any:
    """Convert tuples to lists, frozensets to sorted lists and IR types to strings; return other
    values."""
    if isinstance(value, tuple):
        return [to_json_value(part) for part in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return repr(value) if isinstance(value, Type) else value


def key_of(home: CacheLocation) -> str:
    return digest([b"answers", home.key.encode()])


def header_of(home: CacheLocation) -> dict[str, Any]:
    found = {field: home.header[field] for field in OF_KERNEL}
    return {**found, "kind": "answers", "parts": {**found["parts"], "kind": "answers"}}


def encode_answer(answer: Any, asked: EncodedQuestion, places: Places) -> bytes | None:
    """Encode an answer; return None if it cannot be encoded or has a span outside the kernel's
    functions."""
    try:
        return encode(answer, asked.form, span=lambda span: relative(span, places))
    except local(NoDigestError, TypeError, ValueError):
        return None


def read_answers(home: CacheLocation | None) -> Table:
    """Return the stored answers, or an empty table. Removes an unreadable entry, with a warning."""
    entry = None if home is None else home.shelf.get(key_of(home))
    if home is None or entry is None:
        return Table({}, {})
    try:
        return table_in(entry[1])
    except Malformed as e:
        remove_unreadable(home.shelf, key_of(home), e)
        return Table({}, {})


def table_in(body: bytes) -> Table:
    """Decode the table of an entry; its answers stay encoded. Raises Malformed."""
    found: Table = decode(body, "Table")
    return found


def lines_of(body: bytes) -> Iterator[str]:
    """Yield a line per answer in an entry: its question and its encoded size. Raises Malformed."""
    for table in table_in(body):
        for text, data in table.items():
            yield f"  {text}: {len(data)} bytes"


def artifacts_in(body: bytes) -> list[Artifact]:
    """Decode all answers of an entry; return the artifacts among them and their fields. Raises
    Malformed."""
    found = [
        decode(data, form_in(text)) for table in table_in(body) for text, data in table.items()
    ]
    parts = [part for answer in found
             for part in (answer, *(answer if hasattr(answer, "_fields") else ()))]  # fmt: skip
    return [part for part in parts if isinstance(part, Artifact)]


def save_all() -> None:
    for answers in list(UNSAVED.values()):
        answers.save()


atexit.register(save_all)
