"""Kinds of compile-time values: operations and messages of each."""
