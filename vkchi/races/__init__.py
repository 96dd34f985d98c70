"""Race detection for parallel loops: static dependence tests, instrumented runs, errors and
warnings."""
