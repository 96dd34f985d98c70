import vkchi as ti


@ti.kernel
def k():
    import math
