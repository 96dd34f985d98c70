"""Kernels as operators of other libraries; see `torch_op`, `jax_op`."""
