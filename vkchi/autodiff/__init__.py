"""Automatic differentiation of the IR; see docs/design.md part 5."""
