"""Compilation targets as plain data: device capabilities, compile options, compiled shaders."""
