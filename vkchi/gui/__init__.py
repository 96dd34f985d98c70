"""`ti.GUI`: two-dimensional pictures in a window, a notebook or a file."""
