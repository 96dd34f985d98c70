"""Compiled shaders that last: the disk cache around `build`, and the tool that shows it."""
