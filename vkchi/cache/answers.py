"""What was found out about a kernel, question by question: in a warm process nobody asks its IR.

Owns: `Answers` of one kernel, and its entry. A question is a tuple of plain values, an answer
whatever `codec` has a form for; what has none is kept in memory alone. Places in the user's files
are kept relative to functions, as in a kernel's own entry. Must not know: what is asked.

What was found is written when finding it has taken SLOW_S, and much longer than the last writing,
and when the program ends; what others wrote meanwhile is merged. A process that is killed loses
what it found last: the next one finds it again.

    answers.find(("gradient", frozenset({"x"})), "Differentiated", lambda: differentiate(...))
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from vkchi.autodiff.answers import Along, Differentiated, Flow, Marked, MarkedOp, Outflow, Size
from vkchi.cache.codec import Malformed, add_records, decode, encode
from vkchi.cache.compiled import Home, Places
from vkchi.cache.manifest import absolute, relative
from vkchi.cache.store import digest
from vkchi.cache.survey import Unknown
from vkchi.cache.version import is_changed
from vkchi.interrupts.bounded import remember
from vkchi.interrupts.local import local
from vkchi.target.artifact import Artifact
from vkchi.tuples import NamedTuple
from vkchi.types import Type

Question = tuple[Any, ...]
SLOW_S = 0.01
WRITING_SHARE = 0.1  # of the time that finding takes, at most, but for the end
MOST_KNOWN = 10_000  # answers of one kernel that a process remembers
MOST_OF_CALLS = 1_000  # that are kept of calls: those with other numbers ask anew
MOST_OF_KERNEL = 1_000  # of the rest; a kernel has some for each set of arrays with gradients


class Asked(NamedTuple):
    """A question with the form of its answer, as text, that form, and whether it is about a
    call."""

    text: str
    form: str
    is_of_call: bool


class Table(NamedTuple):
    """Answers as bytes, by the texts of questions, about the kernel and about calls. They are read
    when they are asked for."""

    kernel: dict[str, bytes]
    calls: dict[str, bytes]

    def of(self, asked: Asked) -> tuple[dict[str, bytes], int]:
        """Where an answer stands, and how many do at most."""
        return (self.calls, MOST_OF_CALLS) if asked.is_of_call else (self.kernel, MOST_OF_KERNEL)


add_records(Along, Differentiated, Flow, Marked, MarkedOp, Outflow, Size, Table)


class Answers:
    """A table from questions to answers; without a home it is of this process alone."""

    def __init__(self, home: Home | None = None) -> None:
        self.home = home
        self.known: dict[Question, Any] = {}
        self.kept = read(home)
        self.new: list[tuple[Asked, Any]] = []
        self.seconds = 0.0  # that finding what is new took
        self.seconds_of_writing = 0.0  # that writing took, the last time

    def find(
        self, question: Question, form: str, make: Callable[[], Any], *,
        is_of_call: bool = False, is_lasting: bool = True,
    ) -> Any:  # fmt: skip
        """The answer, which is of this form (`codec`). What `make` raises is none."""
        try:
            return self.known[question]
        except KeyError:
            pass
        lasting = self.home is not None and is_lasting
        asked = Asked(text_of(form, question), form, is_of_call) if lasting else None
        found = None if asked is None else self._read(asked)
        if found is None:
            began = perf_counter()
            found = (make(),)
            if asked is not None:
                self._note(asked, found[0], perf_counter() - began)
        remember(self.known, question, found[0], MOST_KNOWN)
        return found[0]

    def _read(self, asked: Asked) -> tuple[Any] | None:
        """The answer that is kept, in a tuple of one; None if there is none."""
        data = self.kept.of(asked)[0].get(asked.text)
        if data is None or self.home is None:
            return None
        places = self.home.places
        try:
            return (decode(data, asked.form, span=lambda span: absolute(span, places)),)
        except Malformed as e:
            drop(self.home, e)
            self.kept = Table({}, {})
            return None

    def _note(self, asked: Asked, answer: Any, seconds: float) -> None:
        """Have an answer kept, which took so long to find."""
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
        """Put what is new on the shelf."""
        new, self.new, self.seconds = self.new, [], 0.0
        UNSAVED.pop(id(self), None)
        if self.home is None or is_changed():
            return
        theirs = read(self.home)
        merged = Table({**theirs.kernel, **self.kept.kernel}, {**theirs.calls, **self.kept.calls})
        written = [(asked, write(answer, asked, self.home.places)) for asked, answer in new]
        for asked, data in written:
            known, most = merged.of(asked)
            if data is not None and len(known) < most:
                known[asked.text] = data
        if any(data is not None for _, data in written):
            self.kept = merged
            self.home.shelf.put(key_of(self.home), header_of(self.home), encode(merged, "Table"))


UNSAVED: dict[int, Answers] = {}
OF_KERNEL = ("name", "place", "signature", "device", "version", "parts")  # of a header


def text_of(form: str, question: Question) -> str:
    """A question as text, the same in all processes. Raises TypeError for what has none."""
    return json.dumps([form, *plain(question)], separators=(",", ":"))


def form_in(text: str) -> str:
    """The form of the answer to a question. Raises Malformed."""
    try:
        return str(json.loads(text)[0])
    except local(ValueError, TypeError, LookupError):
        raise Malformed(f"{text} is no question") from None


def plain(value: Any) -> Any:
    """A value as what JSON can hold; as much is another value's only where types differ."""
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return repr(value) if isinstance(value, Type) else value


def key_of(home: Home) -> str:
    """The key of the answers about a kernel."""
    return digest([b"answers", home.key.encode()])


def header_of(home: Home) -> dict[str, Any]:
    """What is shown of them without reading them."""
    found = {field: home.header[field] for field in OF_KERNEL}
    return {**found, "kind": "answers", "parts": {**found["parts"], "kind": "answers"}}


def write(answer: Any, asked: Asked, places: Places) -> bytes | None:
    """An answer as bytes; None for what has no form, or is of no place that is known."""
    try:
        return encode(answer, asked.form, span=lambda span: relative(span, places))
    except local(Unknown, TypeError, ValueError):
        return None


def read(home: Home | None) -> Table:
    """The answers that are kept, as bytes."""
    entry = None if home is None else home.shelf.get(key_of(home))
    if home is None or entry is None:
        return Table({}, {})
    try:
        return table_in(entry[1])
    except Malformed as e:
        drop(home, e)
        return Table({}, {})


def table_in(body: bytes) -> Table:
    """The answers of an entry, as bytes. Raises Malformed."""
    found: Table = decode(body, "Table")
    return found


def lines_of(body: bytes) -> Iterator[str]:
    """What is shown of an entry: questions, and how long the answers are. Raises Malformed."""
    for table in table_in(body):
        for text, data in table.items():
            yield f"  {text}: {len(data)} bytes"


def artifacts_in(body: bytes) -> list[Artifact]:
    """The artifacts among the answers of an entry, all of which are read. Raises Malformed."""
    found = [
        decode(data, form_in(text)) for table in table_in(body) for text, data in table.items()
    ]
    parts = [part for answer in found
             for part in (answer, *(answer if hasattr(answer, "_fields") else ()))]  # fmt: skip
    return [part for part in parts if isinstance(part, Artifact)]


def drop(home: Home, fault: Exception) -> None:
    """Remove an entry that cannot be read."""
    key = key_of(home)
    home.shelf.warn(f"the entry {key[:12]} cannot be read ({fault}): it is made anew")
    home.shelf.remove(key)


def save_all() -> None:
    """Put all that is new on its shelf."""
    for answers in list(UNSAVED.values()):
        answers.save()


atexit.register(save_all)
