"""What was found out about a kernel, question by question: in a warm process nobody asks its IR.

Owns: `Answers` of one kernel, and its entry. A question is a tuple of plain values, an answer
whatever `codec` has a form for; what has none is kept in memory alone. Places in the user's files
are kept relative to functions, as in a kernel's own entry. Must not know: what is asked.

What was found is written when finding it has taken SLOW_S, and when the program ends; what others
wrote meanwhile is merged. A process that is killed loses what it found last: the next one finds it
again.

    answers.find(("gradient", frozenset({"x"})), lambda: differentiate(...))
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from vkchi.autodiff.answers import Along, Differentiated, Flow, Marked, MarkedOp, Outflow, Size
from vkchi.cache.codec import Malformed, add_records, decode, encode
from vkchi.cache.compiled import Home, Places
from vkchi.cache.manifest import absolute, moved, relative
from vkchi.cache.store import digest
from vkchi.cache.survey import Unknown
from vkchi.cache.version import is_changed
from vkchi.interrupts.bounded import remember
from vkchi.target.artifact import Artifact

add_records(Along, Differentiated, Flow, Marked, MarkedOp, Outflow, Size)
Question = tuple[Any, ...]
SLOW_S = 0.01
MOST_KNOWN = 10_000  # answers of one kernel that a process remembers
MOST_KEPT = 1_000  # that are kept: calls with other numbers ask anew


class Answers:
    """A table from questions to answers; without a home it is of this process alone."""

    def __init__(self, home: Home | None = None) -> None:
        self.home = home
        self.known: dict[Question, Any] = {}
        self.kept = read(home)  # answers as bytes, which are read when they are asked for
        self.new: dict[Question, Any] = {}
        self.seconds = 0.0  # that finding what is new took

    def find(self, question: Question, make: Callable[[], Any], *, is_lasting: bool = True) -> Any:
        """The answer. What `make` raises is none."""
        try:
            return self.known[question]
        except KeyError:
            found, is_new = self._read(question), False
        if found is None:
            began = perf_counter()
            found, is_new = (make(),), is_lasting and self.home is not None
            self.seconds += perf_counter() - began if is_new else 0.0
        remember(self.known, question, found[0], MOST_KNOWN)
        if is_new and len(self.new) + len(self.kept) < MOST_KEPT:
            self.new[question] = found[0]
            UNSAVED[id(self)] = self
            if self.seconds > SLOW_S:
                self.save()
        return found[0]

    def _read(self, question: Question) -> tuple[Any] | None:
        """The answer that is kept, in a tuple of one; None if there is none."""
        data = self.kept.get(question)
        if data is None or self.home is None:
            return None
        places = self.home.places
        try:
            return (moved(decode(data), lambda span: absolute(span, places)),)
        except (ValueError, TypeError, LookupError, AttributeError) as e:
            drop(self.home, e)
            self.kept = {}
            return None

    def save(self) -> None:
        """Put what is new on the shelf."""
        new, self.new, self.seconds = self.new, {}, 0.0
        UNSAVED.pop(id(self), None)
        if self.home is None or not new or is_changed():
            return
        written = {question: data for question, answer in new.items()
                   if (data := write(answer, self.home.places)) is not None}  # fmt: skip
        if written:
            self.kept = {**read(self.home), **self.kept, **written}
            body = encode(tuple(self.kept.items()))
            self.home.shelf.put(key_of(self.home), header_of(self.home), body)


UNSAVED: dict[int, Answers] = {}
OF_KERNEL = ("name", "place", "signature", "device", "version", "parts")  # of a header


def key_of(home: Home) -> str:
    """The key of the answers about a kernel."""
    return digest([b"answers", home.key.encode()])


def header_of(home: Home) -> dict[str, Any]:
    """What is shown of them without reading them."""
    found = {field: home.header[field] for field in OF_KERNEL}
    return {**found, "kind": "answers", "parts": {**found["parts"], "kind": "answers"}}


def write(answer: Any, places: Places) -> bytes | None:
    """An answer as bytes; None for what has no form, or is of no place that is known."""
    try:
        return encode(moved(answer, lambda span: relative(span, places)))
    except (Unknown, TypeError, ValueError):
        return None


def read(home: Home | None) -> dict[Question, bytes]:
    """The answers that are kept, as bytes."""
    entry = None if home is None else home.shelf.get(key_of(home))
    if home is None or entry is None:
        return {}
    try:
        return table_in(entry[1])
    except Malformed as e:
        drop(home, e)
        return {}


def table_in(body: bytes) -> dict[Question, bytes]:
    """The answers of an entry, as bytes. Raises Malformed."""
    pairs = decode(body)
    try:
        found = dict(pairs)
    except (ValueError, TypeError):
        raise Malformed("no table") from None
    if not all(isinstance(q, tuple) and isinstance(a, bytes) for q, a in found.items()):
        raise Malformed("no answers")
    return found


def lines_of(body: bytes) -> Iterator[str]:
    """What is shown of an entry: questions, and how long the answers are. Raises Malformed."""
    for (name, *about), data in table_in(body).items():
        yield f"  {name}({', '.join(map(str, about))}): {len(data)} bytes"


def artifacts_in(body: bytes) -> list[Artifact]:
    """The artifacts among the answers of an entry, all of which are read. Raises Malformed."""
    found = [decode(data) for data in table_in(body).values()]
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
