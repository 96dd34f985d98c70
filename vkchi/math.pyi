"""`import vkchi.math as tm`, for type checkers: the module is `vkchi.lang.math`."""

from vkchi.lang.math import *  # noqa: F403
