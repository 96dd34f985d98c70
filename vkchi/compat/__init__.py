"""Compatibility with Taichi: aliases, and errors for unsupported names."""
