"""Launch of compiled kernels: from Python arguments to recorded dispatches.

`compiled_kernel` has the code of one signature, `entry` a call with bound arguments, `call_cache`
both of a kernel on one runtime.
"""

import sys

from vkchi.hooks import PackageNotFunction

sys.modules[__name__].__class__ = PackageNotFunction  # Warp has a function `launch`
