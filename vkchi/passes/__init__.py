"""Optimization and lowering passes, run by `pipeline`: functions `Func -> Func`.

Only `split` returns a Program.
"""
