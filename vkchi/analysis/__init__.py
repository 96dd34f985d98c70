"""Analyses of the IR, used by passes, autodiff, tapes, race detection and the emitter."""
