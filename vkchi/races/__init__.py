"""Iterations of one parallel loop that meet: who may, as far as indices tell, and who does."""
