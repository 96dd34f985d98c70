"""Alias of the module `vkchi.lang.math`: `import vkchi.math as tm`. For type checkers too."""

import sys

import vkchi.lang.math
from vkchi.lang.math import *  # noqa: F403

vkchi.lang.math.__path__ = []  # `compat.aliases` finds `vkchi.math.mathimpl`
sys.modules[__name__] = vkchi.lang.math
