"""Race detection for parallel loops: dependence tests, instrumented runs, errors, warnings."""
