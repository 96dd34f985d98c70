"""Reverse and forward mode at run time: tapes, dual numbers, Hessian products, gradient checks."""
