"""Mapping of loops to dispatches, workgroups and invocations."""
