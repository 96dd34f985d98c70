"""Names that Taichi once kept under `ti.experimental`.

Owns: `real_func`, as it was called before `ti.real_func`. Must not know: anything else.

    >>> import vkchi as ti; ti.experimental.real_func is ti.real_func
    True
"""

from vkchi.kernel import real_func

__all__ = ["real_func"]
