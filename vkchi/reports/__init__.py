"""What kernels tell the host."""
