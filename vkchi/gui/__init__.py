"""`ti.GUI`: pictures of two dimensions, in a window, a notebook or a file. Must not know: IR."""
