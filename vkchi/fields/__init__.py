"""Fields: arrays in device memory, and the trees that place them. See docs/design.md, part 10."""
