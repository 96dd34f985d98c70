"""Optimization of accesses: forwarding, scalar replacement, wide accesses."""
