"""Columns of the op table, rows of memory, invocation and report ops, meanings of ops."""
