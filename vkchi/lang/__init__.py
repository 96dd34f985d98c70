"""What a user holds: values, functions that kernels call, namespaces. See docs/design.md part 1."""
