"""Names of Taichi's former module `ti.experimental`.

>>> import vkchi as ti; ti.experimental.real_func is ti.real_func
True
"""

from vkchi.kernel import real_func

__all__ = ["real_func"]
