"""`import vkchi.math as tm`: the module is `vkchi.lang.math`. Type checkers find its names here."""

import sys

import vkchi.lang.math
from vkchi.lang.math import *  # noqa: F403

vkchi.lang.math.__path__ = []  # so that `import vkchi.math.mathimpl` is asked of `compat.aliases`
sys.modules[__name__] = vkchi.lang.math
