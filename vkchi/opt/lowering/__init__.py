"""Expansion of ops that the device or the emitter lacks: atomics, addresses."""
