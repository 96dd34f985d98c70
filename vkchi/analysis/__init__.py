"""Analyses of the IR, used by the passes, autodiff and the emitter."""
