"""See docs/design.md part 1."""
