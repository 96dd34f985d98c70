"""Statements, expressions, branches and loops."""
