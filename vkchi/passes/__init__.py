"""Optimization and lowering passes: functions `Func -> Func`, one per file, run by `pipeline`."""
