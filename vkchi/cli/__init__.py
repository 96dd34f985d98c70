"""Commands of `python -m vkchi` that have a module of their own."""
