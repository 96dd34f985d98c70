"""Linear algebra of small vectors and matrices, decompositions, complex numbers."""
