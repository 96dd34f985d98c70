"""Facts about values: ranges, intervals, index polynomials, host numbers."""
