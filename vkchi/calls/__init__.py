"""Kernel calls for tapes and race detection: their arguments, facts, variants."""
