"""Compilation targets as plain data: device capabilities, compile options, compiled shaders.

Also here: user options (`options`), decisions and warnings (`remarks`), and memory handles.
"""
