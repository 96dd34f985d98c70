"""A kernel's inputs: Python objects that its code can reach, and the values that it read."""
