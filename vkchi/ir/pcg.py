"""PCG random number generator: one stream per invocation. All arithmetic is modulo 2**32.

A draw computes `state = state * MULTIPLIER + INCREMENT` and returns a permutation of the new state:

    word = ((state >> ((state >> 28) + 4)) ^ state) * PERMUTER
    result = (word >> 22) ^ word

`pcg_hash(x)` is the result of one draw from state x. The stream of an invocation begins with `state
= pcg_hash(seed ^ (index * SPREADER))`. Here `seed` is the parameter `.seed` and `index` is
`thread_index`. Each `random` is one draw. The interpreter computes this directly; the pass
`streams` expands it to ops.

Source: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms", 2014
(RXS-M-XS 32); Jarzynski and Olano, Hash Functions for GPU Rendering, 2020.

    >>> hex(output_of(next_state(0)))
    '0x7bb2fe2'
"""

from __future__ import annotations

MULTIPLIER, INCREMENT, PERMUTER, SPREADER = 747796405, 2891336453, 277803737, 2654435769
_MASK = 0xFFFFFFFF


def next_state(state: int) -> int:
    return (state * MULTIPLIER + INCREMENT) & _MASK


def output_of(state: int) -> int:
    word = (((state >> ((state >> 28) + 4)) ^ state) * PERMUTER) & _MASK
    return (word >> 22) ^ word


def first_state(seed: int, index: int) -> int:
    return output_of(next_state(seed ^ (index * SPREADER & _MASK)))
