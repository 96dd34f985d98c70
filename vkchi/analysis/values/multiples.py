"""Power-of-two factors of integers: a power of two, up to 64, that certainly divides a value.

Wrapping arithmetic is modulo a power of two, so facts about low bits remain true.

    >>> PowerOfTwoFactors().of(mul_i_4)     # i * 4
    4
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.analysis.values.sums import is_integer
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Value
from vkchi.ir.ops import Trait, kinds_with
from vkchi.types import Scalar, is_integral

MOST = 64  # larger factors are not used
DEEPEST = 16


class PowerOfTwoFactors:
    """Powers of two that divide values, memoized."""

    def __init__(self) -> None:
        self.found: dict[Value, int] = {}

    def of(self, v: Value, depth: int = 0) -> int:
        """A power of two that divides v: at most MOST, 1 if nothing is known."""
        known = self.found.get(v)
        if known is None:
            known = min(self._find(v, depth), MOST) if depth < DEEPEST else 1
            self.found[v] = known
        return known

    def _find(self, v: Value, depth: int) -> int:
        if not isinstance(v, Op) or not isinstance(v.type, Scalar) or not is_integral(v.type):
            return 1
        number = constant_int(v)
        if number is not None:
            return number & -number or MOST
        rule = RULES.get(v.kind)
        if rule is None or not all(map(is_integer, v.args)):
            return 1
        return rule(v, [self.of(x, depth + 1) for x in v.args])


def _shifted(op: Op, known: list[int]) -> int:
    by = constant_int(op.args[1])
    return known[0] << by if by is not None and 0 <= by < MOST else 1


RULES: dict[str, Callable[[Op, list[int]], int]] = {
    **dict.fromkeys(kinds_with(Trait.KEEPS_FACTORS), lambda op, known: min(known)),
    "mul": lambda op, known: known[0] * known[1],
    "and": lambda op, known: max(known),
    "shl": _shifted,
}
