"""How the op table is written: what a row holds, and `add_row`.

Owns: `Effect`, `Row`, `TABLE`. `ops.py` and the modules of rows beside it fill the table; everyone
reads it from `ops`, which has it complete. Must not know: any row.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from vkchi.ir.sig import Signature, SignatureError
from vkchi.types import Tensor, Type


class Effect(enum.Enum):
    """What an op may do besides computing its result."""

    PURE = "may be merged, moved, repeated and removed"
    ALLOC = "makes a new place; may be removed if unused, never merged"
    READ = "reads memory; may be removed if unused"
    WRITE = "writes memory or advances state; stays, in order"
    ATOMIC = "reads and writes memory; stays, but commutes with its like"
    REPORT = "tells the host something; stays, in order, and touches no memory of the program"
    SYNC = "orders memory between invocations; nothing moves across"
    CONTROL = "has regions or ends one"


Infer = Callable[[tuple[Type, ...], Any, "Type | None"], "Type | None"]


class Row(NamedTuple):
    """One op. `attr` says what Op.attr holds ("" = None)."""

    name: str
    effect: Effect
    infer: Infer
    numpy: Callable[..., Any] | None
    doc: str
    sig: str = ""
    attr: str = ""


TABLE: dict[str, Row] = {}


def add_row(
    name: str,
    sig: str | Infer,
    numpy: Callable[..., Any] | None,
    doc: str,
    effect: Effect = Effect.PURE,
    attr: str = "",
) -> None:
    if isinstance(sig, str):
        parsed = Signature(sig)
        TABLE[name] = Row(
            name, effect, lambda ts, attr, given: parsed.infer(ts, given), numpy, doc, sig, attr
        )
    else:
        TABLE[name] = Row(name, effect, sig, numpy, doc, "", attr)


def effect_of(kind: str) -> Effect:
    """The effect of an op kind. Raises KeyError for an unknown one."""
    return TABLE[kind].effect


def list_types(ts: tuple[Type, ...]) -> str:
    """Operand types as messages show them."""
    return ", ".join(map(str, ts)) or "nothing"


def check_component(t: Tensor, attr: Any) -> None:
    """Raises SignatureError unless t has a component `attr`."""
    if not isinstance(attr, int) or not 0 <= attr < t.size:
        raise SignatureError(f"has no component {attr}: {t} has {t.size}")
