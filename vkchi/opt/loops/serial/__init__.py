"""Transformations of serial loops: unrolling, rerolling, reuse and sharing of loads."""
