import vkchi as ti


@ti.kernel
def k():
    total += 1
