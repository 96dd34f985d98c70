"""Scatter-adds: distribution, expansion and gathering of their loops."""
