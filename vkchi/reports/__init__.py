"""Messages from kernels to the host, and profiling."""
