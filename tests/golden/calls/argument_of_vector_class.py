import vkchi as ti


@ti.kernel
def k(v: ti.Vector):
    pass


k(ti.Vector([1.0, 2.0]))
