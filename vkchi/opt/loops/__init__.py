"""Transformations of parallel loops: fusion, fission, peeling, jamming, blocking, reductions."""
