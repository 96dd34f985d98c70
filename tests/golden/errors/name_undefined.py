import vkchi as ti

thing = 3


@ti.kernel
def k():
    y = thingg + 1
