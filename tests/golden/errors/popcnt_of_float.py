import vkchi as ti


@ti.kernel
def k():
    x = ti.math.popcnt(1.5)
