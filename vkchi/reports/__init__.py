"""Messages from kernels to the host."""
