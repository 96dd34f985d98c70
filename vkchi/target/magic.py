"""Magic numbers for division by multiplication, where the divisor is a launch-time value.

The host computes them. For a divisor n from 1 to 2^31, let l be the bit length of n - 1, so that n
<= 2^l < 2 * n if n > 1. Let m = 2^(31 + l) / n, rounded up. Then for all a from 0 to 2^31 - 1

    a // n == (a * m) >> (31 + l)

Proof. Let k = 31 + l and e = m * n - 2^k. As m is rounded up, 0 <= e <= n - 1. With a = q * n + r,
0 <= r < n, the product over 2^k is

    a * m / 2^k = a / n + a * e / (n * 2^k) = q + (r + a * e / 2^k) / n

It is at least q, since no term is negative. It is less than q + 1 if r + a * e / 2^k < n. Here r <=
n - 1, and a * e < 2^31 * n <= 2^31 * 2^l = 2^k, so a * e / 2^k < 1. Rounded down it is q.

m fits in 32 bits. For n = 1 it is 2^31. Otherwise l >= 1 and n >= 2^(l - 1) + 1, so 2^k / n is at
most 2^32 - 2^32 / (2^(l - 1) + 1). As l <= 31, that is at most 2^32 - 1. The product is below 2^31
* 2^32 = 2^63. The product with 2 * a is below 2^64; its upper word, shifted by l, is also the
quotient.

The proof holds for every word width, with width - 1 in place of 31.

The names `magic_factor` and `magic_shift` are also op kinds and kinds of argument-block slots,
which `vkchi.h` computes as well.

Sources: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994;
Warren, "Hacker's Delight", chapter 10.

    >>> 100 // 7, (100 * magic_multiplier(7)) >> (31 + magic_shift_of(7))
    (14, 14)
"""

from __future__ import annotations

from collections.abc import Callable

WIDTH = 32


def magic_shift_of(n: int) -> int:
    """The shift l for divisor `n`; numbers below 1 count as 1."""
    return (max(n, 1) - 1).bit_length()


def magic_multiplier(n: int, width: int = WIDTH) -> int:
    """The multiplier m for divisor `n`; numbers below 1 count as 1. It fits in a word of `width`
    bits if n is at most 2^(width - 1)."""
    n = max(n, 1)
    return int(((1 << (width - 1 + magic_shift_of(n))) + n - 1) // n)


MAGIC: dict[str, Callable[[int], int]] = {
    "magic_factor": magic_multiplier,
    "magic_shift": magic_shift_of,
}
