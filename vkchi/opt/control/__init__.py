"""Rewriting of branches: jump threading, if-conversion, a limit of nesting."""
