"""Optimization and lowering passes: functions `Func -> Func`, run by `pipeline`. Only `split` returns
a Program."""
