"""Reference semantics of subgroup ops for a subgroup of one invocation.

Example:

    REFERENCE["subgroup_add"]([np.int32(3)], i32)      # 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkchi.ir.op_table.invocation_ops import ARITHMETIC, EXCHANGES
from vkchi.ir.reference.evaluate import zero_of
from vkchi.types import Scalar, Type, scalar_of
from vkchi.types.lazy_numpy import np

Act = Callable[[Sequence[Any], Type], Any]


def _limit(t: Scalar, *, highest: bool) -> Any:
    if t.kind == "f":
        return t.dtype.type(np.inf if highest else -np.inf)
    info = np.iinfo(t.dtype)
    return t.dtype.type(info.max if highest else info.min)


# op -> identity: the reduction of no values
IDENTITIES: dict[str, Callable[[Scalar], Any]] = {
    "add": zero_of,
    "mul": lambda t: t.dtype.type(1),
    "min": lambda t: _limit(t, highest=True),
    "max": lambda t: _limit(t, highest=False),
    "and": lambda t: ~zero_of(t),
    "or": zero_of,
    "xor": zero_of,
}


def _nothing(name: str) -> Act:
    return lambda args, t: IDENTITIES[name](scalar_of(t))


def _own(args: Sequence[Any], t: Type) -> Any:
    return args[0]


def _none(args: Sequence[Any], t: Type) -> None:
    return None


REFERENCE: dict[str, Act] = {
    **{f"subgroup_{span}{name}": _own for span in ("", "inclusive_") for name in ARITHMETIC},
    **{f"subgroup_exclusive_{name}": _nothing(name) for name in ARITHMETIC},
    **{f"subgroup_{name}": _own for name in (*EXCHANGES, "first", "all", "any")},
    "subgroup_all_equal": lambda args, t: np.bool_(args[0] == args[0]),
    "subgroup_ballot": lambda args, t: np.uint32(bool(args[0])),
    "subgroup_ballot_wide": lambda args, t: np.uint64(bool(args[0])),
    "warp_ballot": lambda args, t: np.uint32(bool(args[0])),
    "subgroup_barrier": _none,
    "subgroup_size": lambda args, t: np.int32(1),
    "subgroup_index": lambda args, t: np.int32(0),
    "subgroup_elect": lambda args, t: np.bool_(True),
}
