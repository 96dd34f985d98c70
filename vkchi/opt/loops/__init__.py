"""Loop transformations: fusion, fission, peeling, jamming, reductions."""
