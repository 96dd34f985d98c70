"""Calls: dispatch on the callee, inlining, tables of functions."""
