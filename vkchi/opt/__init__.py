"""Optimization and lowering passes, run by `pipeline`.

A pass takes a Func, and some also device capabilities, options, a memo or a log. It returns a Func.
`split` returns a Program and the temporary arrays that it needs.
"""
