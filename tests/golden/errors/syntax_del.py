import vkchi as ti


@ti.kernel
def k():
    a = 1
    del a
