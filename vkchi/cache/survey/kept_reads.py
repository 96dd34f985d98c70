"""Serialization of the reads of Python values by a kernel: the path of each value instead of the
value.

A process that deserializes a read takes the value from its own objects, whose digest is the same. A
path begins at a function, stored as its index in `survey.functions`. Item keys other than ints and
strings are stored as positions in their dict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vkchi.cache.codec import Malformed
from vkchi.cache.survey.kernel_survey import KernelSurvey, NoDigestError
from vkchi.frontend.state.captured_values import (
    OF_PARENTS,
    Path,
    PathRoot,
    Read,
    Step,
    repeatable_reads,
    value_of,
)
from vkchi.interrupts.local import local
from vkchi.span import Span
from vkchi.tuples import NamedTuple


class KeptRead(NamedTuple):
    """A serialized read. `function` (an index), `kind` and `name` identify the root of its path."""

    function: int
    kind: str
    name: str
    steps: tuple[tuple[str, int | str], ...]
    how: str
    span: Span | None


def kept_reads(reads: Iterable[Read], survey: KernelSurvey) -> tuple[KeptRead, ...]:
    """Serialize the reads of a kernel. Raises NoDigestError for a path from a function outside the
    survey, and for a key that has no position."""
    args = values_of(survey)
    return tuple([kept_read(read, survey, args) for read in reads])


def kept_read(read: Read, survey: KernelSurvey, args: tuple[Any, ...]) -> KeptRead:
    root, steps = read.path
    if root.fn not in survey.functions:
        raise NoDigestError(f"{root.fn.__qualname__} was reached by no name")
    kept = []
    for k, (kind, key) in enumerate(steps):
        if kind == "attr" or type(key) in (int, str):
            kept.append((kind, key))
            continue
        base = value_of(Path(root, steps[:k]), args)
        found = [at for at, one in enumerate(base) if one is key] if type(base) is dict else []
        if not found:
            raise NoDigestError(f"{read.path} has a key without a form")
        kept.append(("at", found[0]))
    number = survey.functions[root.fn]
    return KeptRead(number, root.kind, root.name, tuple(kept), read.how, read.span)


def reads_of(kept: Iterable[KeptRead], survey: KernelSurvey) -> tuple[Read, ...]:
    """Deserialize reads: evaluate their paths in this process. Raises Malformed if that fails."""
    args, functions = values_of(survey), list(survey.functions)
    try:
        return repeatable_reads([read_of(one, functions, args) for one in kept], args)
    except local(Exception) as e:  # also those of user code
        raise Malformed(f"a value that the kernel reads cannot be read: {e}") from None


def read_of(one: KeptRead, functions: list[Any], args: tuple[Any, ...]) -> Read:
    root = PathRoot(one.kind, functions[one.function], one.name)  # type: ignore[arg-type]
    steps: tuple[Step, ...] = ()
    for kind, key in one.steps:
        if kind == "at":
            kind, key = "item", list(value_of(Path(root, steps), args))[int(key)]
        steps = (*steps, (kind, key))
    path = Path(root, steps)
    how: Any = one.how
    if how in OF_PARENTS:
        return Read(path, how, steps[-1][1], one.span)
    value = value_of(path, args)
    return Read(path, how, type(value) if how == "kind" else value, one.span)


def values_of(survey: KernelSurvey) -> tuple[Any, ...]:
    return tuple([arg.value for arg in survey.args])
