"""Numbers by which divisions by what only a launch knows are multiplications: found by the host.

Of a divisor n from 1 to 2^31, let l be the bits of n - 1, so that n <= 2^l < 2 * n where n > 1, and
m = 2^(31 + l) / n, rounded up. Then for all a from 0 to 2^31 - 1

    a // n == (a * m) >> (31 + l)

Proof. Let k = 31 + l and e = m * n - 2^k; as m is rounded up, e is from 0 to n - 1. With
a = q * n + r, 0 <= r < n, the product over 2^k is

    a * m / 2^k = a / n + a * e / (n * 2^k) = q + (r + a * e / 2^k) / n

It is at least q, for nothing in it is negative; and less than q + 1 if r + a * e / 2^k < n. Now
r <= n - 1, and a * e < 2^31 * n <= 2^31 * 2^l = 2^k, so a * e / 2^k < 1. Rounded down it is q.

m fits 32 bits: for n = 1 it is 2^31; else l >= 1 and n >= 2^(l - 1) + 1, so that 2^k / n is at most
2^32 - 2^32 / (2^(l - 1) + 1), which is at most 2^32 - 1 as l <= 31. The product is below
2^31 * 2^32 = 2^63; that of 2 * a is below 2^64, and its upper word, shifted by l, is the quotient
as well.

Nothing in this hangs on 32 but as the width of a word: with width - 1 in place of 31 it holds for
every width, so that a test goes through all numbers of some.
Sources: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994;
Warren, "Hacker's Delight", chapter 10.

Owns: both numbers by name, which are those of ops, of slots in argument blocks and of `vkchi.h`.
Must not know: who multiplies.

    >>> 100 // 7, (100 * factor(7)) >> (31 + shift(7))
    (14, 14)
"""

from __future__ import annotations

from collections.abc import Callable

WIDTH = 32


def shift(n: int) -> int:
    """l of a divisor; 0 counts as 1."""
    return (max(n, 1) - 1).bit_length()


def factor(n: int, width: int = WIDTH) -> int:
    """m of a divisor, which fits words of this width; 0 counts as 1."""
    n = max(n, 1)
    return int(((1 << (width - 1 + shift(n))) + n - 1) // n)


MAGIC: dict[str, Callable[[int], int]] = {"magic_factor": factor, "magic_shift": shift}
