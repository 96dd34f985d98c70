"""What a user holds: values, functions that kernels call, namespaces. See docs/design.md part 1."""

from vkchi.hooks import open_names

open_names(globals())
