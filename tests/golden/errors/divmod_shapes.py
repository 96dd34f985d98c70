import vkchi as ti


@ti.kernel
def k():
    q, r = divmod(ti.Vector([1, 2]), ti.Vector([1, 2, 3]))
