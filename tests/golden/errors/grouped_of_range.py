import vkchi as ti


@ti.kernel
def k():
    for I in ti.grouped(range(3)):
        pass
