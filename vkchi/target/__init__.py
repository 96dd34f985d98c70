"""Compilation targets as plain data: device capabilities, compile options, compiled shaders.

Also here: user options (`config`), decisions, warnings and memory handles.
"""
